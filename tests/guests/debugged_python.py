"""Threads in Python with C between its functions: one sorts by qsort(3), which calls Python to compare; one waits for ever; the first one waits for the sorting
one. At the end it aborts in the midst of that, or damages what the interpreter knows of itself before."""
# run:
# run: abort => SIGABRT
# run: circle => SIGABRT
# run: wild => SIGABRT
# run: code => SIGABRT

import ctypes
import os
import sys
import threading

libc = ctypes.CDLL(None)
NUMBER = ctypes.POINTER(ctypes.c_int)
COMPARISON = ctypes.CFUNCTYPE(ctypes.c_int, NUMBER, NUMBER)
how = sys.argv[1] if len(sys.argv) > 1 else ""
waits, never = threading.Event(), threading.Event()


def compare(left, right):
    difference = left[0] - right[0]
    if how == "abort":
        os.abort()  # here it aborts
    if how:
        damage()
    return difference


def sort(numbers, label="of a call", **options):
    array = (ctypes.c_int * len(numbers))(*numbers)
    libc.qsort(array, len(numbers), ctypes.sizeof(ctypes.c_int), COMPARISON(compare))  # here it sorts
    return list(array)


def lists(count):
    for i in range(count):
        yield sort([30, 20, 10], depth=i)  # here it yields


def work():
    total = 0
    share = lambda: total
    for numbers in lists(1):  # here it works
        total += sum(numbers)
    print(share())


def wait_for(event, name):
    pi, big, small, flag, nothing = 3.5, -(1 << 70), -7, True, None
    text, data = "it's\n\u00fc\u20ac\U0001F40D", b"\x00'a"
    table = {"one": [2, (3,), {4}], "two": 1, 5: ()}
    numbers = list(range(100))
    kind = int
    del nothing
    waits.set()
    event.wait()  # here it waits
    print(pi, big, small, flag, text, data, table, numbers, kind, name)


def say(text):
    os.write(1, text)  # here it says


def damage():
    """Overwrites what leads to the function that has called this one, or where this one's file is named. No function of Python's is called meanwhile: it would
    be the one that is found."""
    word = ctypes.c_uint64.from_address
    state = ctypes.pythonapi.PyThreadState_Get
    state.restype = ctypes.c_void_p
    state = state()
    version = sys.version_info[1]
    if version <= 12:
        frame = word(word(state + 56).value + (8 if version == 11 else 0)).value
    else:
        told = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        frame = word(state + word(told + 8 * (23 if version == 13 else 26)).value).value
    previous = word(frame + (48 if version == 11 else 8))
    file = word(id(damage.__code__) + 112)
    if how == "circle":
        previous.value = frame
    elif how == "wild":
        previous.value = 0x4141414141414141
    else:
        file.value = 0x4141414141414141
    os.abort()  # here it is damaged


def main():
    waiter = threading.Thread(target=wait_for, args=(never, "waiter"), daemon=True)
    waiter.start()
    waits.wait()
    say(b"it begins\n")
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()  # here it joins


main()
