# What the questions to a recording have in common. Run inside gdb, before the script of one question.
#
# What is asked is in `wanted` beside the pipe that REPRISE_ANSWER names. What gdb has to say goes into that pipe as JSON, in frames
# (reprise_debug::collect); the server puts the values into it that the program puts down by itself.
import gdb
import json
import os
import re
import struct

MOST_FRAMES = 1000
# Values whose texts are told in advance.
MOST_TEXTS = 256
# What gdb calls the operations of agent expressions, and their codes. The bytes of their operands are in their names, or here.
OPERATIONS = {
    "add": 0x02, "sub": 0x03, "mul": 0x04, "div_signed": 0x05, "div_unsigned": 0x06, "rem_signed": 0x07, "rem_unsigned": 0x08, "lsh": 0x09,
    "rsh_signed": 0x0a, "rsh_unsigned": 0x0b, "log_not": 0x0e, "bit_and": 0x0f, "bit_or": 0x10, "bit_xor": 0x11, "bit_not": 0x12,
    "equal": 0x13, "less_signed": 0x14, "less_unsigned": 0x15, "ext": 0x16, "ref8": 0x17, "ref16": 0x18, "ref32": 0x19, "ref64": 0x1a,
    "if_goto": 0x20, "goto": 0x21, "const8": 0x22, "const16": 0x23, "const32": 0x24, "const64": 0x25, "reg": 0x26, "end": 0x27,
    "dup": 0x28, "pop": 0x29, "zero_ext": 0x2a, "swap": 0x2b, "pick": 0x32, "rot": 0x33,
}
OPERANDS = {"ext": 1, "zero_ext": 1, "pick": 1, "if_goto": 2, "goto": 2, "reg": 2, "const8": 1, "const16": 2, "const32": 4, "const64": 8}
STATIC = {"const8", "const16", "const32", "const64", "add", "sub", "mul", "lsh", "ext", "zero_ext", "end"}

answer = os.environ["REPRISE_ANSWER"]
root = os.environ["REPRISE_ROOT"]
with open(os.path.join(os.path.dirname(answer), "wanted")) as file:
    wanted = json.load(file)
pipe = open(answer, "wb")


class Failed(Exception):
    pass


def tell(**what):
    data = json.dumps(what).encode()
    pipe.write(struct.pack("<cI", b"J", len(data)) + data)
    pipe.flush()


def server(command):
    return gdb.execute("monitor " + command, to_string=True).strip()


# The event that comes next, as the server said it last.
now = [0]


def event():
    return now[0]


def thread():
    return gdb.selected_thread().ptid[1]


def object_of(pc):
    path = gdb.solib_name(pc) or gdb.current_progspace().filename
    if not path:
        return None
    return path[len(root):] if path.startswith(root) else path


def function_of(pc):
    block = gdb.block_for_pc(pc)
    while block is not None and block.function is None:
        block = block.superblock
    if block is not None:
        return block.function.print_name
    # A name without debugging information: "name + 12 in section .text of FILE".
    symbol = gdb.execute("info symbol %d" % pc, to_string=True)
    found = re.match(r"(.*?)( \+ \d+)? in section ", symbol)
    return found.group(1) if found else None


# The place of an instruction; one before `pc`, if pc is where the program goes on behind it.
def place_of(pc, behind=False):
    at = pc - 1 if behind else pc
    line = gdb.find_pc_line(at)
    place = {"pc": pc, "function": function_of(at)}
    if line.symtab is not None:
        place["file"] = line.symtab.filename
        place["line"] = line.line
    else:
        place["object"] = object_of(at)
    return place


# Code by which an expression's value can be found without gdb, where the program is: its operations' names, and its bytes.
def code_of(expression):
    try:
        listing = gdb.execute("maint agent-eval " + expression, to_string=True)
    except gdb.error:
        return None
    names, code = [], b""
    for line in listing.splitlines():
        found = re.match(r"\s*(\d+)  (\w+)(?: (-?\d+))?$", line)
        if not found:
            continue
        name, operand = found.group(2), found.group(3)
        if name not in OPERATIONS or int(found.group(1)) != len(code):
            return None
        names.append(name)
        code += bytes([OPERATIONS[name]])
        size = OPERANDS.get(name, 0)
        if size:
            code += (int(operand) & (1 << 8 * size) - 1).to_bytes(size, "big")
    return (names, code) if names else None


def text_of(value):
    return value.format_string()


# How a number of this type is shown, where that needs no gdb: its bytes and sign, and texts of values that are shown otherwise.
def shape_of(value):
    type = value.type.strip_typedefs()
    size = type.sizeof
    if size not in (1, 2, 4, 8) or gdb.default_visualizer(value) is not None:
        return None
    if type.code not in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_ENUM, gdb.TYPE_CODE_CHAR):
        return None
    if type.code == gdb.TYPE_CODE_CHAR and size > 1:
        return None
    signed = is_signed(type)
    shape = {"bytes": size, "signed": signed, "texts": {}}
    if size == 1:
        values = range(-128, 128) if signed else range(256)
    elif type.code == gdb.TYPE_CODE_ENUM:
        values = [field.enumval for field in type.fields()]
        other = next(n for n in range(3, 1 << 16) if n not in values)
        if len(values) > MOST_TEXTS or text_of(gdb.Value(other).cast(value.type)) != str(other):
            # One of flags: any sum of them has a name.
            return None
    elif type.code == gdb.TYPE_CODE_BOOL:
        return None
    else:
        values = []
        if text_of(gdb.Value(77).cast(value.type)) != "77":
            return None
    for one in values:
        shape["texts"][str(one)] = text_of(gdb.Value(one).cast(value.type))
    return shape


def is_signed(type):
    if type.code == gdb.TYPE_CODE_BOOL:
        return False
    if hasattr(type, "is_signed"):
        return type.is_signed
    return int(gdb.Value(-1).cast(type)) < 0


# Something wrong with it is said at once, not when a line is passed.
def check_expression(expression):
    try:
        gdb.execute("ptype " + expression, to_string=True)
    except gdb.error as why:
        if is_nonsense(why):
            raise Failed("%s: %s" % (expression, why))


# No expression of the language, wherever the program is.
def is_nonsense(why):
    return any(words in str(why) for words in ("syntax error", "parse error", "Unmatched", "Invalid character", "Invalid number"))


# A breakpoint in code that may not be there yet. Tells where it is, if that is another line than was asked for.
def note_moved(breakpoint, place):
    asked = re.match(r"(.*):(\d+)$", place)
    for location in getattr(breakpoint, "locations", None) or []:
        if asked and location.source and location.source[1] != int(asked.group(2)):
            tell(moved={"asked": place, "line": location.source[1]})
            return


def check_place(breakpoint, place):
    if been[0] or not breakpoint.is_valid() or not breakpoint.pending:
        return
    if gdb.objfiles() and not gdb.execute("info sources", to_string=True).strip():
        raise Failed("the program has no place %s that is known: it was built without debugging information (-g)" % place)
    if re.match(r".*:\d+$", place):
        raise Failed("the program has no line %s with code (its files are named as its compiler knew them)" % place)
    raise Failed("the program has no function %s" % place)


# Lets the program run on until the server says that there is something: `seen` is called at each stop of its own.
def run(seen=lambda: True):
    last = None
    while True:
        gdb.execute("continue")
        why, here = server("collect why").split()
        now[0] = int(here)
        if why == "write" or why == "stop":
            if not seen():
                return why
        elif why not in ("signal", "exec"):
            return why
        else:
            # The signal that ends it is told again and again.
            here = (why, here, gdb.selected_thread() and gdb.newest_frame().pc())
            if here == last:
                return "end"
            last = here


# Goes to where so many events have happened, if the first ones are not wanted.
def begin():
    server("collect to " + answer)
    if wanted.get("to") is not None:
        # Who goes on before an event is known when that comes.
        server("collect until %d" % (wanted["to"] + 1))
    # "event 12 of 120; ..."
    _, now[0], _, all = re.match(r"(\w+) (\d+) (\w+) (\d+)", server("when")).groups()
    now[0] = int(now[0])
    if wanted.get("from"):
        if wanted["from"] > int(all):
            raise Failed("the recording has %s events, no event %d" % (all, wanted["from"]))
        go_to_first()


def go_to_first():
    if wanted.get("from"):
        go("run-to %d" % wanted["from"])
        now[0] = int(server("when").split()[1])


# Places that are the server's; and whether there ever was one, or a stop.
handed = set()
been = [False]


# From now on the server stops at this place, or puts down what this code finds there; gdb has no breakpoint at `location` any more.
def hand_over(breakpoint, location, pc, code, how="at"):
    for i, one in enumerate(getattr(breakpoint, "locations", None) or []):
        if one.address == location:
            server("collect %s %x %s" % (how, pc, code))
            handed.add(pc)
            been[0] = True
            if one.enabled:
                gdb.execute("disable %d.%d" % (breakpoint.number, i + 1))
            return


# The process becomes another program: the server forgets the places of the one that was here.
def take_back(_):
    handed.clear()
    for breakpoint in gdb.breakpoints():
        for i in range(len(getattr(breakpoint, "locations", None) or [])):
            gdb.execute("enable %d.%d" % (breakpoint.number, i + 1))


gdb.events.clear_objfiles.connect(take_back)


def go(command):
    said = server(command)
    if said and said != "yes":
        raise Failed(said)
    gdb.execute("reverse-continue")


def ask(question):
    try:
        begin()
        why = question()
        tell(ended=why, event=event())
    except Failed as why:
        tell(failed=str(why))
    except gdb.error as why:
        tell(failed="gdb: " + str(why).strip())
    except KeyboardInterrupt:
        tell(ended="interrupted", event=event())
    pipe.close()
