"""Threads in Python beside queues: conditions, events, barriers, semaphores, timers, thread-local data, pools, a fork among threads."""
# run: 30

import concurrent.futures
import faulthandler
import os
import sys
import threading

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
sys.setswitchinterval(0.0005)

# Turns by a condition.
condition, turn, order = threading.Condition(), 0, []


def takes_turns(me):
    global turn
    for _ in range(ROUNDS):
        with condition:
            condition.wait_for(lambda: turn % 3 == me)
            order.append(me)
            turn += 1
            condition.notify_all()


threads = [threading.Thread(target=takes_turns, args=(i,)) for i in range(3)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert order == [0, 1, 2] * ROUNDS

# A plain number that everybody adds to, with and without a lock.
racy, kept, lock, room = 0, 0, threading.Lock(), threading.BoundedSemaphore(2)
own, barrier = threading.local(), threading.Barrier(4)


def adds():
    global racy, kept
    own.value = threading.get_native_id()
    for _ in range(ROUNDS * 100):
        old = racy
        racy = old + 1
        with lock:
            kept += 1
    with room:
        pass
    barrier.wait()
    assert own.value == threading.get_native_id()


threads = [threading.Thread(target=adds) for _ in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert kept == 4 * ROUNDS * 100 and 0 < racy <= kept
print("racy", racy)
try:
    room.release()
    raise AssertionError("released too often")
except ValueError:
    pass
assert not threading.Event().wait(0.001)
assert lock.acquire() and not lock.acquire(timeout=0.001)
lock.release()

rung = threading.Event()
timer = threading.Timer(0.001, rung.set)
timer.start()
rung.wait()
never = threading.Timer(1000, sys.exit)
never.start()
never.cancel()
never.join()
with concurrent.futures.ThreadPoolExecutor(3) as pool:
    futures = [pool.submit(divmod, 100, n) for n in range(5)]
    assert isinstance(futures[0].exception(), ZeroDivisionError)
    assert [f.result() for f in futures[1:]] == [divmod(100, n) for n in range(1, 5)]
    ended = [f.result()[0] for f in concurrent.futures.as_completed(futures[1:])]
    assert sorted(ended) == [25, 33, 50, 100]

# A fork while another thread runs: the child has one thread.
stop = threading.Event()
busy = threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)])
busy.start()
for i in range(3):
    pid = os.fork()
    if pid == 0:
        os._exit(40 + threading.active_count())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 41
stop.set()
busy.join()
# An exception that nobody catches ends only its thread.
threading.excepthook = lambda args: print("hook", args.exc_type.__name__)
bad = threading.Thread(target=lambda: 1 / 0)
bad.start()
bad.join()
faulthandler.enable()
print("process", os.getpid())
