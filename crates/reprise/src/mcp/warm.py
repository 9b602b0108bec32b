# Answers questions about a replay, one after the other, until nobody asks any more. Run inside gdb, behind goroutine_stacks.py.
#
# A question is a line of JSON that comes through the socket whose number is in REPRISE_LINE, and so is its answer: {"done": ...}, {"failed": why},
# {"interrupted": true}; with "lost" when the replay is gone.
import gdb
import json
import os
import re
import socket

MOST_FRAMES = 1000
# Frames between a wait and the function that waits.
MOST_INLINED = 4
# Elements of an array or a string, and depth of structures, that are shown of a value.
SHOWN = {"max_elements": 200, "max_depth": 8}
# Names of source files. A trace says where sources are, and is not to say that a key is one.
SOURCES = re.compile(r".*\.([chCHsS]|cc|cpp|cxx|c\+\+|hh|hpp|hxx|h\+\+|inl|ipp|tcc|inc|rs|go|asm|d|f|f90|for|swift|zig|nim|pas|adb|ads|m|mm|java|py|y|l)$")
MOST_SOURCE = 16 << 20
# Bytes that the processor can watch.
MOST_WATCHED = 32
# Where threads wait, by their functions' names.
WAITS = {
    "futex": re.compile(r"(__)*(lll_lock_wait|futex_|GI___lll_lock|GI___futex|pthread_mutex_lock|pthread_mutex_timedlock|lll_mutex|pthread_rwlock_|pthread_cond_|pthread_join|pthread_clockjoin|sem_wait|new_sem_wait|pthread_barrier|syscall$)"),
}
MUTEX = re.compile(r"_*(lll_lock_wait(_private)?|GI___lll_lock_wait|pthread_mutex_lock|GI___pthread_mutex_lock|pthread_mutex_cond_lock|lll_mutex_lock_optimized)$")

root = os.environ["REPRISE_ROOT"]
link = socket.socket(fileno=int(os.environ["REPRISE_LINE"]))
lines = link.makefile("r", encoding="utf-8")
for setting in ("pagination off", "unwindonsignal on", "print elements 200", "max-value-size 1048576", "backtrace limit %d" % MOST_FRAMES):
    gdb.execute("set " + setting, to_string=True)


class Failed(Exception):
    pass


class NoShell(gdb.Function):
    """Takes the place of a function of gdb's that runs commands of the shell."""

    def invoke(self, *_):
        raise gdb.GdbError("no commands are run here")


for name in ("_shell", "_gdb_setting_str", "_gdb_setting"):
    NoShell(name)


def server(command):
    return gdb.execute("monitor " + command, to_string=True).strip()


def where():
    found = re.match(r"event (\d+) of (\d+)", server("when"))
    return int(found.group(1)), int(found.group(2))


# The place at which the replay stands, as it was asked for; None: somewhere.
standing = None


def move(command):
    said = server(command)
    if said and said != "yes":
        raise Failed(said)
    gdb.execute("reverse-continue", to_string=True)
    see_libraries()


# gdb learns of libraries behind such a motion, and reads no symbols of them by itself.
def see_libraries():
    gdb.execute("sharedlibrary", to_string=True)


def clear():
    for breakpoint in gdb.breakpoints() or ():
        if breakpoint.is_valid():
            breakpoint.delete()


# Goes to where the question is about.
def stand(asked):
    global standing
    place = asked.get("at", "last")
    if place == "here" or place == standing:
        return
    standing = None
    clear()
    if isinstance(place, int):
        _, all = where()
        if place > all:
            raise Failed("the recording has %d events, no event %d" % (all, place))
        move("run-to %d" % place)
    else:
        move("collect " + place)
    standing = place


# What the replay tells of Python's stacks, by thread.
def python_stacks():
    try:
        stacks = json.loads(server("python"))["threads"]
    except (gdb.error, ValueError):
        return {}
    return {stack["thread"]: stack for stack in stacks}


def place_of_frame(frame):
    line = frame.find_sal()
    if line.symtab is not None:
        return {"file": line.symtab.filename, "line": line.line}
    place = {"pc": "0x%x" % frame.pc()}
    path = gdb.solib_name(frame.pc()) or gdb.current_progspace().filename
    if path:
        place["object"] = path[len(root):] if path.startswith(root) else path
    return place


# Of a thread that is in Python all frames are wanted, with their stacks' pointers: it is found by these where its functions belong.
def frames_of(frame, limit, arguments, in_python=False):
    listed = []
    while frame is not None and len(listed) < (MOST_FRAMES if in_python else limit):
        one = {"function": frame.name() or "??"}
        if in_python:
            one["sp"] = int(frame.read_register("rsp")) & (1 << 64) - 1
        if len(listed) < limit:
            one.update(place_of_frame(frame))
        if arguments and len(listed) < limit and frame.function() is not None:
            one["arguments"] = arguments_of(frame)
        listed.append(one)
        try:
            frame = frame.older()
        except gdb.error:
            break
    return listed


def arguments_of(frame):
    listed = {}
    try:
        block = frame.block()
    except RuntimeError:
        return listed
    while block is not None and block.function is None:
        block = block.superblock
    for symbol in block or ():
        if symbol.is_argument:
            listed[symbol.print_name] = text_of(lambda: symbol.value(frame))
    return listed


def text_of(value):
    try:
        return value().format_string(**SHOWN)
    except gdb.error as why:
        return "<%s>" % why


def threads():
    return sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.ptid[1])


def select(asked):
    wanted = asked.get("thread")
    if wanted is not None:
        for thread in threads():
            if thread.ptid[1] == wanted:
                thread.switch()
                break
        else:
            ids = ", ".join(str(thread.ptid[1]) for thread in threads())
            raise Failed("there is no thread %d at event %d; there are %s" % (wanted, where()[0], ids))
    frame = gdb.newest_frame()
    for _ in range(asked.get("frame") or 0):
        frame = frame.older()
        if frame is None:
            raise Failed("the thread has no frame %d here" % asked["frame"])
    frame.select()
    return frame


# The mutex for which a thread waits: glibc's, whose lock word comes first and whose owner is the third word.
def mutex_of(frame):
    caller = frame
    for _ in range(MOST_INLINED):
        if caller is None or MUTEX.match(caller.name() or ""):
            break
        caller = caller.older()
    else:
        return None
    if caller is None:
        return None
    try:
        at = int(frame.read_register("rdi")) & (1 << 64) - 1
        memory = gdb.selected_inferior().read_memory(at, 12)
    except (gdb.error, ValueError):
        return None
    lock, owner = (int.from_bytes(bytes(memory[i:i + 4]), "little", signed=True) for i in (0, 8))
    return {"mutex": "0x%x" % at, "held_by": owner} if lock > 0 and owner > 0 else None


def backtrace(asked):
    stand(asked)
    now, all = where()
    current = gdb.selected_thread()
    if current is None:
        raise Failed("there are no threads at event %d" % now)
    listed, python = [], python_stacks()
    for thread in threads():
        if asked.get("thread") not in (None, thread.ptid[1]):
            continue
        thread.switch()
        newest = gdb.newest_frame()
        one = {"thread": thread.ptid[1]}
        if thread.num == current.num:
            one["stopped"] = True
        name = newest.name() or ""
        if WAITS["futex"].match(name):
            one["waits"] = True
        waits = mutex_of(newest)
        if waits:
            one["waits_for"] = waits
        one["frames"] = frames_of(newest, asked["frames"], asked.get("arguments"), thread.ptid[1] in python)
        listed.append(one)
    current.switch()
    if not listed:
        select(asked)
    # The one that stopped comes first.
    listed.sort(key=lambda one: not one.get("stopped", False))
    answer = {"event": now, "of": all, "why": why_here(), "threads": listed, "python": list(python.values())}
    if asked.get("goroutines"):
        describe = lambda frame: frames_of(frame, 1, False)[0]
        answer["goroutines"], answer["goroutines_are_cut"] = goroutines(describe, asked["frames"])
    return answer


def why_here():
    return server("collect why").split()[0]


def is_unknown(why):
    return str(why).startswith("No symbol ") or "in current context" in str(why)


# An expression where it is known: in the frame that is named, else in the nearest one that knows it.
def known(expression, asked, evaluate):
    frame = select(asked)
    first = None
    number = asked.get("frame") or 0
    for _ in range(MOST_FRAMES):
        frame.select()
        try:
            return evaluate(), number
        except gdb.error as why:
            first = first or why
            if not is_unknown(why) or asked.get("frame") is not None:
                raise Failed("%s: %s" % (expression, why))
        frame = frame.older()
        if frame is None:
            break
        number += 1
    raise Failed("%s: %s" % (expression, first))


def evaluate(asked):
    stand(asked)
    now, all = where()
    listed = []
    for expression in asked["expressions"]:
        one = {"expression": expression}
        try:
            value, frame = known(expression, asked, lambda: gdb.parse_and_eval(expression))
            one["value"] = value.format_string(**SHOWN)
            one["type"] = str(value.type)
            if frame:
                one["frame"] = frame
        except (Failed, gdb.error) as why:
            one["failed"] = str(why)
        listed.append(one)
    return {"event": now, "of": all, "values": listed}


# The name of a file beside the sources of a trace that may have been moved, as gdb finds it.
def source(asked):
    if (asked.get("file") or "").startswith("/") and asked["file"].endswith(".py"):
        # Of scripts gdb knows nothing.
        return lines_around(asked["file"], asked["line"], asked["context"])
    if asked.get("file"):
        place = "%s:%d" % (asked["file"], asked["line"])
        try:
            found = gdb.decode_line(place)[1]
        except gdb.error:
            # It may be in a library that is not there at the beginning.
            stand({"at": "last"})
            try:
                found = gdb.decode_line(place)[1]
            except gdb.error as why:
                raise Failed(str(why))
        sal = found[0] if found else None
        line = asked["line"]
    else:
        stand(asked)
        sal = select(asked).find_sal()
        line = sal.line
    if sal is None or sal.symtab is None:
        raise Failed("no source is known there: it was built without debugging information (-g)")
    path = sal.symtab.fullname()
    if path.startswith(root):
        path = path[len(root):]
    return lines_around(path, line, asked["context"])


def lines_around(path, line, context):
    if not SOURCES.match(path):
        raise Failed("%s has not the name of a source file" % path)
    try:
        if os.path.getsize(path) > MOST_SOURCE:
            raise Failed("%s is too large" % path)
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read().split("\n")
    except OSError as why:
        raise Failed("the trace has no sources, and %s can't be read: %s" % (path, why.strerror))
    first = max(1, line - context)
    last = min(len(text), line + context)
    shown = [{"line": n, "text": text[n - 1]} for n in range(first, last + 1)]
    return {"file": path, "line": line, "lines": shown}


def last_write(asked):
    global standing
    stand(asked)
    began, all = where()
    expression = asked["expression"]
    pointer, frame = known(expression, asked, lambda: gdb.parse_and_eval("&(%s)" % expression))
    target = pointer.type.strip_typedefs().target()
    address, size = int(pointer), target.sizeof
    if not 0 < size <= MOST_WATCHED:
        raise Failed("%s has %d bytes; the processor can watch %d: name a part of it" % (expression, size, MOST_WATCHED))
    value = gdb.Value(address).cast(pointer.type)
    answer = {"expression": expression, "address": "0x%x" % address, "bytes": size, "from": began, "of": all}
    answer["value"] = text_of(value.dereference)
    gdb.execute("watch -location *(char (*)[%d]) %d" % (size, address), to_string=True)
    standing = None
    try:
        while True:
            gdb.execute("reverse-continue", to_string=True)
            why = why_here()
            if why != "signal":
                break
        now, _ = where()
    finally:
        clear()
    if why == "interrupted":
        raise KeyboardInterrupt
    answer["event"] = now
    if why != "write":
        answer["written"] = False
        return answer
    answer["written"] = True
    answer["before"] = text_of(value.dereference)
    thread = gdb.selected_thread()
    answer["thread"] = thread.ptid[1]
    see_libraries()
    answer["frames"] = frames_of(gdb.newest_frame(), asked["frames"], False)
    answer["frames"][0].update(place_of(gdb.newest_frame().pc()))
    return answer


# Function and line of an instruction. At the first one of a function that was put into another, gdb shows a frame of the other.
def place_of(pc):
    place = {}
    block = gdb.block_for_pc(pc)
    while block is not None and block.function is None:
        block = block.superblock
    if block is not None:
        place["function"] = block.function.print_name
    line = gdb.find_pc_line(pc)
    if line.symtab is not None:
        place["file"], place["line"] = line.symtab.filename, line.line
    return place


# A script that was made for a gdb of its own.
def script(asked):
    global standing
    standing = None
    clear()
    move("collect first")
    os.environ["REPRISE_ANSWER"] = asked["answer"]
    room = {"__name__": "script"}
    try:
        exec(compile(asked["text"], "script", "exec"), room)
    finally:
        if "take_back" in room:
            gdb.events.clear_objfiles.disconnect(room["take_back"])
        clear()
        server("collect nothing")
    return None


QUESTIONS = {"backtrace": backtrace, "evaluate": evaluate, "source": source, "last_write": last_write, "script": script}


def answer(asked):
    try:
        return {"done": QUESTIONS[asked["ask"]](asked)}
    except Failed as why:
        return {"failed": str(why)}
    except KeyboardInterrupt:
        return {"interrupted": True}
    except gdb.error as why:
        return {"failed": "gdb: " + str(why).strip()}
    except Exception as why:
        return {"failed": "%s: %s" % (type(why).__name__, why), "lost": True}


def is_lost():
    try:
        return gdb.selected_inferior().pid == 0
    except (gdb.error, RuntimeError):
        return True


def serve(line):
    global standing
    reply = answer(json.loads(line))
    if reply.get("interrupted"):
        standing = None
    if is_lost():
        reply["lost"] = True
    data = json.dumps(reply).encode() + b"\n"
    while data:
        try:
            data = data[link.send(data):]
        except KeyboardInterrupt:
            continue


while True:
    try:
        line = lines.readline()
        if not line:
            break
        serve(line)
    except KeyboardInterrupt:
        # It came when there was nothing left to interrupt.
        continue
