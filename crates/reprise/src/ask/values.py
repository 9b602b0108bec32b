# Each value of an expression: at each visit of a place, or at each write to its memory.
expression = wanted["expression"]
place = wanted.get("place")


class Stop(gdb.Breakpoint):
    def stop(self):
        return True


STOP = "27"
# Places that were told, and how numbers are shown there.
told = {}


# The value here. What gdb has to call a function for can't be found in the midst of a breakpoint's decision; so this is behind a stop.
def at_visit(visit):
    pc = gdb.newest_frame().pc()
    here = {"pc": pc, "event": event(), "thread": thread()}
    shape, code = None, None
    try:
        value = gdb.parse_and_eval(expression)
        text = text_of(value)
        shape = shape_of(value)
        code = shape and code_of(expression)
    except gdb.error as why:
        if not told and (is_nonsense(why) or str(why).startswith("No symbol ")):
            raise Failed("%s: %s" % (expression, why))
        text = "<%s>" % why
    if not code:
        # Perhaps it only has no value at this visit.
        shape = told.get(pc)
    if pc not in told or told[pc] != shape:
        tell(place=place_of(pc), shape=shape)
        told[pc] = shape
    tell(value=text, **here)
    been[0] = True
    # The code that has only an end finds nothing, and so is a stop each time.
    hand_over(visit, pc, pc, code[1].hex() if code else STOP)
    return True


def visits():
    check_expression(expression)
    visit = Stop(place)
    note_moved(visit, place)
    why = run(lambda: at_visit(visit))
    check_place(visit, place)
    return why


# A number alone is an address.
def located():
    number = re.match(r"(0x[0-9a-fA-F]+|\d+)$", expression.strip())
    if not number:
        return expression
    at = int(number.group(1), 0)
    for type, size in (("long", 8), ("int", 4), ("short", 2)):
        if at % size == 0:
            return "*(%s *) %d" % (type, at)
    return "*(char *) %d" % at


def address_here(what):
    frame = gdb.newest_frame()
    first = None
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        frame.select()
        try:
            return gdb.parse_and_eval("&(%s)" % what)
        except gdb.error as why:
            first = first or why
        try:
            frame = frame.older()
        except gdb.error:
            break
    raise Failed("%s: %s" % (expression, first))


# Where what is meant lies: as it is known at a place, or from the beginning, or where the program crashed or ended.
def address_of(what):
    if place is not None:
        once = Stop(place)
        note_moved(once, place)
        why = run(lambda: False)
        if why != "stop":
            check_place(once, place)
            raise Failed("the program never came to %s" % place)
        found = address_here(what)
        once.delete()
        return found
    code = code_of("&(%s)" % what)
    if code and all(name in STATIC for name in code[0]):
        return address_here(what)
    go("collect last")
    found = address_here(what)
    try:
        found.dereference().fetch_lazy()
    except gdb.error as why:
        raise Failed("%s, where the program ended: %s (--at or --function name another place)" % (expression, why))
    go("collect first")
    now[0] = int(server("when").split()[1])
    go_to_first()
    return found


def writes():
    check_expression(expression)
    what = located()
    pointer = address_of(what)
    at, type = int(pointer), pointer.type.strip_typedefs().target()
    pointer = gdb.Value(at).cast(type.pointer())
    known = set()
    shape = None
    try:
        before = pointer.dereference()
        shape = shape_of(before)
        tell(before=text_of(before), event=event(), address=at, bytes=type.sizeof)
    except gdb.error:
        # It is not there yet. A number of its type is.
        shape = shape_of(gdb.Value(0).cast(type)) if type.sizeof in (1, 2, 4, 8) and is_number(type) else None
    tell(shape=shape)
    if server("collect writes %x %x %s" % (at, type.sizeof, "plain" if shape else "told")) != "yes":
        raise Failed("%s has %d bytes at 0x%x; the processor can watch 4 pieces of up to 8 bytes: name a part of it" % (expression, type.sizeof, at))

    def seen():
        pc = gdb.newest_frame().pc()
        if pc not in known:
            known.add(pc)
            tell(place=place_of(pc, behind=True), shape=shape)
        if not shape:
            try:
                text = text_of(pointer.dereference())
            except gdb.error as why:
                text = "<%s>" % why
            tell(value=text, pc=pc, event=event(), thread=thread())
        return True

    return run(seen)


def is_number(type):
    return type.code in (gdb.TYPE_CODE_INT, gdb.TYPE_CODE_BOOL, gdb.TYPE_CODE_ENUM, gdb.TYPE_CODE_CHAR)


ask(writes if wanted["writes"] else visits)
