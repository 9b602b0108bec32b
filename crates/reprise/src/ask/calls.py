# Each call of a function, who made it, and what it was given and gave back.
name = wanted["place"]
with_arguments, with_returns = wanted["arguments"], wanted["returns"]
# The word at the top of the stack: ref64 of register 7.
RETURN_ADDRESS = "2600071a27"
# Calls that have begun and are to be told of, and ends of calls.
seen = {"call": False, "returned": []}
number = 0


class Call(gdb.Breakpoint):
    def stop(self):
        seen["call"] = True
        return True


class Return(gdb.FinishBreakpoint):
    def __init__(self, frame, number, is_void):
        super().__init__(frame, internal=True)
        self.number_of_call, self.is_void = number, is_void
        self.silent = True

    def stop(self):
        text = None
        if self.return_value is not None:
            text = text_of(self.return_value)
        elif self.is_void:
            text = "void"
        seen["returned"].append((self.number_of_call, text))
        return True

    def out_of_scope(self):
        tell(returned=self.number_of_call, left=True, event=event())


def function_block(frame):
    try:
        block = frame.block()
    except RuntimeError:
        return None
    while block is not None and block.function is None:
        block = block.superblock
    return block


def arguments_of(frame, block):
    listed = []
    for symbol in block or []:
        if symbol.is_argument:
            try:
                text = text_of(symbol.value(frame))
            except gdb.error as why:
                text = "<%s>" % why
            listed.append([symbol.print_name, text])
    return listed


def caller_of(frame):
    older = frame.older()
    if older is None:
        return None
    place = place_of(older.pc(), behind=older.type() != gdb.INLINE_FRAME and frame.type() != gdb.INLINE_FRAME)
    place["function"] = older.name() or place["function"]
    return place


# The first instruction of the function that an instruction is in, unless that is a copy inside of another function.
def entry_of(pc):
    block = gdb.block_for_pc(pc)
    while block is not None and block.function is None:
        block = block.superblock
    if block is not None:
        whole = block.superblock is not None and (block.superblock.is_static or block.superblock.is_global)
        return block.start if whole else None
    found = re.match(r"\S+(?: \+ (\d+))? in section ", gdb.execute("info symbol %d" % pc, to_string=True))
    return pc - int(found.group(1) or 0) if found else None


def is_void(block):
    if block is None or block.function.type is None:
        return False
    return block.function.type.target().strip_typedefs().code == gdb.TYPE_CODE_VOID


# Where nothing more is asked for than who calls: compiled code puts that down, at the function's first instruction.
def compile_in(breakpoint):
    if with_arguments or with_returns or breakpoint.pending:
        return
    for location in getattr(breakpoint, "locations", None) or []:
        entry = entry_of(location.address)
        if entry is not None and entry not in handed:
            tell(entry=entry, function=function_of(location.address))
            hand_over(breakpoint, location.address, entry, RETURN_ADDRESS, how="addresses")


# Places of callers that compiled code has met.
def tell_callers():
    while True:
        met = server("collect untold").split()
        if not met:
            return
        for address in met:
            tell(caller=place_of(int(address, 16), behind=True))


def at_call(breakpoint):
    global number
    number += 1
    been[0] = True
    frame = gdb.newest_frame()
    block = function_block(frame)
    what = {"call": number, "event": event(), "thread": thread(), "function": frame.name(), "from": caller_of(frame)}
    if with_arguments:
        what["arguments"] = arguments_of(frame, block)
    waits = False
    if with_returns and frame.type() == gdb.NORMAL_FRAME and frame.older() is not None:
        try:
            Return(frame, number, is_void(block))
            waits = True
        except (ValueError, gdb.error):
            pass
    tell(waits=waits, **what)
    compile_in(breakpoint)


def calls():
    call = Call(name)
    compile_in(call)

    def look():
        tell_callers()
        for ended, text in seen["returned"]:
            tell(returned=ended, value=text, event=event())
        seen["returned"].clear()
        if seen["call"]:
            seen["call"] = False
            at_call(call)
        return True

    why = run(look)
    tell_callers()
    check_place(call, name)
    return why


ask(calls)
