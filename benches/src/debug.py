# What the rows of the debugger time, in one session of gdb on a recording that stands at its end: lines `NAME SECONDS` in the file that
# REPRISE_TIMES names. REPRISE_SECONDS: how many seconds of processor time the recorded program has used.
import gdb, os, re, time

out = open(os.environ["REPRISE_TIMES"], "w")
seconds = float(os.environ["REPRISE_SECONDS"])


def said(command):
    return gdb.execute(command, to_string=True)


def timed(name, command):
    begun = time.monotonic()
    said(command)
    print(name, time.monotonic() - begun, file=out, flush=True)


gdb.execute("set confirm off")
gdb.execute("set pagination off")
here = int(re.search(r"event (\d+) of", said("when")).group(1))
second = here / seconds
own = re.search(r"keeps (\d+) checkpoints, which take (\d+) KiB", said("monitor checkpoints"))
print("checkpoints", own.group(1), file=out)
print("memory", int(own.group(2)) << 10, file=out)

timed("back-at-the-end", f"run-to {int(here - second)}")
early = 5 if seconds > 6 else seconds / 2
said(f"run-to {int(early * second)}")
timed("back-early", f"run-to {int((early - 1) * second)}")

said(f"run-to {int(here * 0.9)}")
said("break tick")
said("continue")
said("delete")
said("stepi 3")
timed("step-back-first", "reverse-stepi")
timed("step-back-again", "reverse-stepi")

said(f"run-to {here}")
said("break tick")
timed("to-the-hit-before", "reverse-continue")
said("delete")

said("run-to 0")
said("tbreak visits")
said("continue")
said("break visit if i == 10000")
timed("false-hits", "continue")
hit = gdb.parse_and_eval("i")
print("hit", int(hit), file=out, flush=True)
out.close()
