# Where a value comes from, in one process: finds what is meant, and names the places of the trail that the server finds.
ENDS = ("constant", "computed", "input", "result", "born", "runtime", "unknown", "interrupted")
# What can be followed at a time.
MOST_BYTES = 32
REGISTERS = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15")


def bytes_text(value):
    try:
        return bytes(value.bytes if hasattr(value, "bytes") else []).hex()
    except gdb.error:
        return ""


# The general register of which this name is a part, and the bytes.
def register_of(name):
    low = {"l": (0, 1), "h": (1, 1), "x": (0, 2)}
    for number, whole in enumerate(REGISTERS):
        if name == whole:
            return number, 0, 8
        if number >= 8 and name[:-1] == whole:
            return {"d": (number, 0, 4), "w": (number, 0, 2), "l": (number, 0, 1), "b": (number, 0, 1)}.get(name[-1])
        if number < 8 and name == "e" + whole[1:]:
            return number, 0, 4
        if number < 4 and len(name) == 2 and name[0] == whole[1] and name[1] in low:
            return (number,) + low[name[1]]
        if 4 <= number < 8 and name in (whole[1:], whole[1:] + "l"):
            return number, 0, 2 if name == whole[1:] else 1
    return None


# Where a frame's register is: in the thread, or where a function that it has called has put it.
def place_of_register(name, size, frame):
    found = register_of(name)
    if found is None:
        raise Failed("%s is in register %s, which can't be followed from here: ask at an event before it was loaded" % (expression, name))
    number, first, _ = found
    inner = frame.newer()
    while inner is not None:
        if inner.type() != gdb.INLINE_FRAME:
            inner.select()
            saved = re.search(r"\b%s at (0x[0-9a-f]+)" % REGISTERS[number], gdb.execute("info frame", to_string=True))
            if saved:
                return "m:%x:%d" % (int(saved.group(1), 16) + first, size)
        inner = inner.newer()
    return "r:%d:%d:%d" % (number, first, size)


# Where a variable is at this place, as gdb puts it into words.
def register_by_symbol(frame):
    try:
        text = gdb.execute("info address " + expression, to_string=True)
    except gdb.error:
        return None
    pc = frame.pc() - (1 if frame.newer() is not None and frame.newer().type() == gdb.NORMAL_FRAME else 0)
    for begin, end, name in re.findall(r"Range (0x[0-9a-f]+)-(0x[0-9a-f]+): a variable in \$(\w+)", text):
        if int(begin, 16) <= pc < int(end, 16):
            return name
    found = re.search(r"is a variable in \$(\w+)", text)
    return found.group(1) if found else None


def in_frame(what, frame):
    frame.select()
    value = gdb.parse_and_eval(what)
    if value.type.code in (gdb.TYPE_CODE_REF, getattr(gdb, "TYPE_CODE_RVALUE_REF", -1)):
        value = value.referenced_value()
    if value.type.strip_typedefs().code in (gdb.TYPE_CODE_FUNC, gdb.TYPE_CODE_METHOD):
        raise Failed("%s is a function" % expression)
    if value.is_optimized_out:
        raise Failed("%s is optimized out here: the compiler has left no trace of it at this place (ask at another event, or for what it was made of)" % expression)
    size = value.type.sizeof
    if size > MOST_BYTES:
        raise Failed("%s has %d bytes; %d can be followed at a time: name a part of it, as %s" % (expression, size, MOST_BYTES, example(value)))
    if size == 0:
        raise Failed("%s has no bytes" % expression)
    register = re.match(r"\$(\w+)$", what.strip())
    if register and register_of(register.group(1)):
        return place_of_register(register.group(1), min(size, register_of(register.group(1))[2]), frame), value
    try:
        at = int(gdb.parse_and_eval("&(%s)" % what))
        # It has to be there.
        gdb.selected_inferior().read_memory(at, size)
        return "m:%x:%d" % (at, size), value
    except gdb.MemoryError as why:
        raise Failed("%s: %s" % (expression, why))
    except gdb.error as why:
        name = re.search(r"in register \$(\w+)", str(why))
        name = name.group(1) if name else register_by_symbol(frame)
        if name is None:
            raise Failed("%s: %s (name what is in memory or in a register: a variable, an element, a field)" % (expression, str(why).rstrip(".")))
        return place_of_register(name, size, frame), value


def example(value):
    type = value.type.strip_typedefs()
    if type.code == gdb.TYPE_CODE_ARRAY:
        return "%s[0]" % expression
    if type.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        names = [f.name for f in type.fields() if f.name and hasattr(f, "bitpos") and not f.is_base_class]
        if names:
            return "%s.%s" % (expression, names[0])
    return "*(char *) &%s" % expression


def number_as_memory():
    number = re.match(r"(0x[0-9a-fA-F]+|\d+)$", expression.strip())
    return "*(unsigned char *) %d" % int(number.group(1), 0) if number else expression


def begin_at(place, value, frame):
    tell(start={"place": place, "value": text_of(value), "event": int(server("when").split()[1]), "thread": thread(),
                "at": place_of(frame.pc(), behind=frame.newer() is not None), "symbol": symbol_at(place)})
    return place


# In the frame nearest to where the thread is that knows all of it.
def locate():
    check_expression(expression)
    what = number_as_memory()
    if gdb.selected_thread() is None:
        raise Failed("no thread is there any more: --at names an event at which one was")
    frame, first = gdb.newest_frame(), None
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        try:
            place, value = in_frame(what, frame)
            return begin_at(place, value, frame)
        except Failed:
            raise
        except gdb.error as why:
            # What it says of the first frame is what its user sees.
            first = first or why
        try:
            frame = frame.older()
        except gdb.error:
            break
    # Where no function of the source file is under way, what is its own has a longer name.
    if re.match(r"[A-Za-z_]", what):
        try:
            frame = gdb.newest_frame()
            place, value = in_frame("(anonymous namespace)::" + what, frame)
            return begin_at(place, value, frame)
        except gdb.error:
            pass
    text = str(first).rstrip(".")
    if text.startswith("No symbol table is loaded") or not has_symbols():
        raise Failed("%s: the program was built without debugging information (-g): name an address, as 0x7ffe1234 or *(int *) 0x7ffe1234" % expression)
    raise Failed("%s: %s, in no function that was under way there (--at EVENT names another place)" % (expression, text))


def has_symbols():
    return bool(gdb.execute("info sources", to_string=True).strip().replace("\n", ""))


def symbol_at(place):
    words = place.split(":")
    if words[0] != "m":
        return None
    text = gdb.execute("info symbol 0x%s" % words[1], to_string=True)
    found = re.match(r"(.*?)(?: \+ (\d+))? in section ", text)
    if not found:
        return None
    return found.group(1) + (" + " + found.group(2) if found.group(2) else "")


# The word of memory of a vector of buffers in which a byte is.
def in_vector(at, count, skip, len):
    memory = gdb.selected_inferior()
    for n in range(min(count, 1024)):
        base, size = struct.unpack("<QQ", bytes(memory.read_memory(at + 16 * n, 16)))
        if skip < size:
            return "m:%x:%d" % (base + skip, max(1, min(len, size - skip)))
        skip -= size
    raise Failed("the buffers that were sent are not there")


def in_message(at, skip, len):
    vector, count = struct.unpack("<QQ", bytes(gdb.selected_inferior().read_memory(at + 16, 16)))
    return in_vector(vector, count, skip, len)


def is_known(place):
    return place.get("line") is not None


def is_in_library(place):
    return not is_known(place) or gdb.solib_name(place["pc"]) is not None


def name_places(step):
    if "pc" in step:
        pc = int(step.pop("pc"), 16)
        step["place"] = place_of(pc)
        if step.get("kind") in ("computed", "runtime", "unknown"):
            try:
                step["code"] = " ".join(gdb.newest_frame().architecture().disassemble(pc)[0]["asm"].split())
            except gdb.error:
                pass
    callers = [int(at, 16) for at in step.pop("callers", "").split(",") if at]
    if "place" in step and is_in_library(step["place"]):
        step["library"] = True
        # Who of the program has called the library that did it.
        known = [place_of(at) for at in callers if at < 1 << 47]
        known = [p for p in known if is_known(p) and not is_in_library(p)]
        if known:
            step["caller"] = known[0]
    for end in ("to", "from", "at"):
        if end in step:
            step[end + "_symbol"] = symbol_at(step[end])
    for number in ("event", "thread", "first", "count"):
        if number in step:
            step[number] = int(step[number])


def trail():
    start = wanted.get("start")
    if start is None:
        place = locate()
    elif "vector" in start:
        place = in_vector(start["vector"], start["count"], start["skip"], start["len"])
    elif "message" in start:
        place = in_message(start["message"], start["skip"], start["len"])
    else:
        place = "m:%x:%d" % (start["at"], start["len"])
    said = server("origin %d %d %s" % (thread(), wanted.get("depth") or 0, place))
    for line in said.splitlines():
        if line.startswith("failed "):
            raise Failed(line[7:])
        if not re.match(r"\d+ (copy|part|end|operand) ?", line):
            # How far it is, which is told when it takes long.
            continue
        words, _, why = line.partition(" why=")
        level, what, *rest = words.split(" ")
        step = dict(word.split("=", 1) for word in rest)
        step.update(level=int(level), what=what)
        if why:
            step["why"] = why
        name_places(step)
        tell(step=step)
    return "end"


expression = wanted.get("expression")
try:
    why = trail()
    tell(ended=why, event=0)
except Failed as why:
    tell(failed=str(why))
except gdb.error as why:
    tell(failed="gdb: " + str(why).strip())
except KeyboardInterrupt:
    tell(ended="interrupted", event=0)
except Exception as why:
    tell(failed="gdb's script failed, which is a bug in reprise: %r" % why)
pipe.close()
