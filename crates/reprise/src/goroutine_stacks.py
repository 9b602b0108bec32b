# Goroutines of a Go program, with their stacks and what they wait for; run inside gdb, in front of a script that asks for them.
#
# What the Go runtime knows of a goroutine is read by the program's debugging information, so no version's layout is known here. The registers of a
# thread can't be changed in a replay: instead gdb is told, by an unwinder, that a thread's newest frame was called from where the goroutine stands,
# and so follows its stack as any other, functions that were put into others included.
import gdb
import gdb.unwinder

# Goroutines that are told of, and frames of each.
MOST_GOROUTINES = 1000
MOST_FRAMES_OF_ONE = 100
# Goroutines that are looked at: those that have ended stay in the list.
MOST_LISTED = 100000
# Reasons that a runtime has, and the longest name of one.
MOST_REASONS = 256
LONGEST_REASON = 100
# As runtime2.go numbers them. A bit beside says that the stack is being scanned.
STATES = {1: "runnable", 2: "running", 3: "syscall", 4: "waiting", 8: "copystack", 9: "preempted", 10: "leaked"}
SCANNED = 0x1000
RUNNING, IN_CALL, WAITING = 2, 3, 4
# Where a stack ends.
OUTERMOST = "runtime.goexit"


class Elsewhere(gdb.unwinder.Unwinder):
    """Lets the newest frame be called from somewhere else."""

    def __init__(self):
        super().__init__("goroutine")
        self.newest = None
        self.registers = {}

    def __call__(self, frame):
        if self.newest is None or self.at(frame) != self.newest:
            return None
        info = frame.create_unwind_info(Lowest())
        for name, value in self.registers.items():
            kind = frame.read_register(name).type
            info.add_saved_register(name, gdb.Value(value).cast(kind))
        return info

    @staticmethod
    def at(frame):
        return int(frame.read_register("rip")), int(frame.read_register("rsp"))

    # The frame behind the newest one; None: gdb can't follow it.
    def begin(self, registers):
        self.newest = None
        gdb.invalidate_cached_frames()
        self.newest, self.registers = self.at(gdb.newest_frame()), registers
        gdb.invalidate_cached_frames()
        return gdb.newest_frame().older()

    def end(self):
        self.newest = None
        gdb.invalidate_cached_frames()


# Of a frame: lower on the stack than any other, or gdb would take the stack for corrupt.
class Lowest:
    def __init__(self):
        self.sp = self.pc = gdb.Value(16)


class Goroutines:
    # Raises gdb.error where the program is none of Go's, or has no debugging information.
    def __init__(self, describe, most):
        self.all = gdb.parse_and_eval("'runtime.allgs'")
        self.reasons = gdb.parse_and_eval("'runtime.waitReasonStrings'")
        self.describe, self.most = describe, most
        self.stands = stack_pointers()
        self.elsewhere = Elsewhere()
        gdb.unwinder.register_unwinder(None, self.elsewhere, replace=True)

    def reason(self, number):
        low, high = self.reasons.type.range()
        if not low <= number <= min(high, MOST_REASONS):
            return None
        text = self.reasons[number]
        length = int(text["len"])
        if not 0 < length <= LONGEST_REASON:
            return None
        memory = gdb.selected_inferior().read_memory(int(text["str"]), length)
        return bytes(memory).decode("utf-8", "replace")

    def stack(self, saved):
        registers = {"rip": int(saved["pc"]), "rsp": int(saved["sp"]), "rbp": int(saved["bp"])}
        if not registers["rip"]:
            return []
        found = []
        try:
            frame = self.elsewhere.begin(registers)
            while frame is not None and len(found) < self.most and frame.name() != OUTERMOST:
                found.append(self.describe(frame))
                frame = frame.older()
        except gdb.error:
            pass
        finally:
            self.elsewhere.end()
        return found

    def one(self, g):
        state, number = plain(g["atomicstatus"]) & ~SCANNED, int(g["goid"])
        began = name_of(int(g["startpc"])) or ""
        # The runtime's own are left out, as its own traces do.
        if state not in STATES or number == 0 or began.startswith("runtime.") and began != "runtime.main":
            return None
        told = {"goroutine": number, "state": STATES[state]}
        if state == WAITING:
            told["waits_for"] = self.reason(plain(g["waitreason"]))
        is_on_its_stack = False
        if state in (RUNNING, IN_CALL) and int(g["m"]):
            thread = int(g["m"].dereference()["procid"])
            told["thread"] = thread
            low, high = int(g["stack"]["lo"]), int(g["stack"]["hi"])
            is_on_its_stack = low <= self.stands.get(thread, 0) < high
        maker = name_of(int(g["gopc"]) - 1)
        if maker:
            told["created_by"] = maker
        # That of a thread is told of with it. Where the thread has gone to a stack of the runtime's, this one is saved as any other.
        told["frames"] = [] if is_on_its_stack else self.stack(g["sched"])
        return told


# A number, or one that is atomic.
def plain(value):
    while value.type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT:
        value = value["value"]
    return int(value)


def name_of(pc):
    block = gdb.block_for_pc(pc) if pc > 0 else None
    while block is not None and block.function is None:
        block = block.superblock
    return block.function.print_name if block is not None else None


# Where each thread stands on its stack, by its id.
def stack_pointers():
    selected, found = gdb.selected_thread(), {}
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        found[thread.ptid[1]] = int(gdb.newest_frame().read_register("rsp"))
    selected.switch()
    return found


# All of them, and whether there are more; none where the program is none of Go's. `describe` tells of a frame, of which one has so many at `most`.
def goroutines(describe, most=MOST_FRAMES_OF_ONE):
    try:
        known = Goroutines(describe, most)
        count = min(int(known.all["len"]), MOST_LISTED)
        first = known.all["array"]
    except (gdb.error, RuntimeError):
        return [], False
    found = []
    for i in range(count):
        if len(found) >= MOST_GOROUTINES:
            return found, True
        try:
            one = known.one((first + i).dereference().dereference())
        except (gdb.error, RuntimeError, ValueError, OverflowError):
            continue
        if one is not None:
            found.append(one)
    return found, count == MOST_LISTED
