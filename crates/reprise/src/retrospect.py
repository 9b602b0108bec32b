# Prints an expression each time a line is passed into the file that REPRISE_ANSWER names. Run inside gdb. What is wanted is in `wanted`
# beside that file; what gdb says of a line or an expression that it does not know goes into `failed`.
import gdb
import json
import os

answer = os.environ["REPRISE_ANSWER"]
room = os.path.dirname(answer)
with open(os.path.join(room, "wanted")) as file:
    place, expression = json.load(file)
out = open(answer, "w")


def fail(why):
    with open(os.path.join(room, "failed"), "w") as file:
        file.write(str(why))


class Printer(gdb.Breakpoint):
    def stop(self):
        try:
            value = gdb.parse_and_eval(expression).format_string()
        except gdb.error as why:
            value = "<" + str(why) + ">"
        event = gdb.execute("monitor when", to_string=True).split()[1]
        thread = gdb.selected_thread().ptid[1]
        out.write("event %s  thread %s  %s: %s = %s\n" % (event, thread, place, expression, value))
        return False


try:
    # It may be in a library that is not there yet.
    printer = Printer(place)
    gdb.execute("continue")
    if printer.pending:
        fail("the program has no place " + place)
except gdb.error as why:
    fail(why)
out.close()
