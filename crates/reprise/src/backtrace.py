# Writes the backtraces of all threads, and of goroutines, as JSON into the file that REPRISE_ANSWER names. Run inside gdb, behind goroutine_stacks.py.
import gdb
import json
import os

MOST_FRAMES = 1000


def python_stacks():
    try:
        return json.loads(gdb.execute("monitor python", to_string=True))
    except (gdb.error, ValueError):
        return {"threads": []}


def described(frame):
    one = {"pc": frame.pc(), "function": frame.name()}
    place = frame.find_sal()
    if place.symtab is not None:
        one["file"] = place.symtab.filename
        one["line"] = place.line
    path = gdb.solib_name(frame.pc()) or gdb.current_progspace().filename
    path = named.get(path, path)
    if path:
        one["object"] = path[len(root):] if path.startswith(root) else path
    return one


def frames(with_sp):
    frame = gdb.newest_frame()
    listed = []
    while frame is not None and len(listed) < MOST_FRAMES:
        one = described(frame)
        if with_sp:
            one["sp"] = int(frame.read_register("rsp")) & (1 << 64) - 1
        listed.append(one)
        try:
            frame = frame.older()
        except gdb.error:
            break
    return listed


root = os.environ["REPRISE_ROOT"]
# The program's file is a link into the trace, which gdb follows.
program = os.environ.get("REPRISE_PROGRAM", "")
named = {os.path.realpath(program): program} if program else {}
current = gdb.selected_thread()
python = python_stacks()
in_python = {stack["thread"] for stack in python["threads"]}
threads = []
for thread in gdb.selected_inferior().threads():
    thread.switch()
    threads.append({
        "thread": thread.ptid[1],
        "stopped": thread.num == current.num,
        "frames": frames(thread.ptid[1] in in_python),
    })
# The one that stopped comes first.
threads.sort(key=lambda thread: (not thread["stopped"], thread["thread"]))
current.switch()
all_goroutines, are_cut = goroutines(described)
answer = {"threads": threads, "python": python, "goroutines": all_goroutines, "goroutines_are_cut": are_cut}
with open(os.environ["REPRISE_ANSWER"], "w") as out:
    json.dump(answer, out)
