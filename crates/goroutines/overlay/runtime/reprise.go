// Recording and replaying at the level of goroutines (Castor, sections 3.5 and 4.2).
//
// What a goroutine is told from outside is a value: results of system calls, clocks, ids of new goroutines. What goroutines do to each other is an
// ordered event: operations on channels, acquired locks, atomic operations. One log has both. The place of an event in it is drawn with a single
// addition, while the object is held; so places are an order of the operations on each object, and of all objects together.
//
// A replay gives each goroutine its own events in sequence, lets a value through at once, and an ordered event when all ordered ones before it are done.

package runtime

import (
	"internal/abi"
	"internal/runtime/atomic"
	"internal/runtime/sys"
	"unsafe"
)

// What `reprise record` looks for in a program. The digits at its end are the version of all that is in shared memory.
//
//go:linkname repriseMark
var repriseMark = "reprise goroutines 0001"

// repriseOn says whether goroutines are recorded or replayed. It is 0 until the first package outside of the runtime is initialised.
//
//go:linkname repriseOn
var repriseOn uint32

const (
	repriseRecords = 1
	repriseReplays = 2
)

// Kinds of events.
const (
	repriseGo           = 1
	repriseSend         = 2
	repriseRecv         = 3
	repriseClose        = 4
	repriseSelect       = 5
	repriseLock         = 6
	repriseTryLock      = 7
	repriseRLock        = 8
	repriseTryRLock     = 9
	repriseWLock        = 10
	repriseTryWLock     = 11
	repriseAdd          = 12
	repriseWait         = 13
	repriseCondAdd      = 14
	repriseSignal       = 15
	repriseBroadcast    = 16
	repriseAtomic       = 17
	repriseNow          = 18
	repriseNano         = 19
	repriseSyscall      = 20
	reprisePoll         = 21
	repriseNewTimer     = 22
	repriseStopTimer    = 23
	repriseResetTimer   = 24
	repriseDrain        = 25
	repriseTimerSend    = 26
	repriseTimerGo      = 27
	repriseDescriptor   = 28
	repriseGotSignal    = 29
	repriseNumGoroutine = 30
	repriseExit         = 31
	reprisePanic        = 32
	repriseDeadlock     = 33
	repriseFork         = 34
	repriseChanLen      = 35
)

// Why a replay ended, in shared memory.
const (
	repriseDiverged = 1
	repriseFinished = 2
)

// repriseNone is no event.
const repriseNone = 1<<32 - 1

// repriseUnit is the unit of the log: an event, or 32 bytes of what it carries.
type repriseUnit struct {
	// Recorded: the event's place plus 1, written last. Replayed: the goroutine's next event, and the event's number among ordered ones.
	mark uint64
	// Kind, length of what follows in bytes, goroutine.
	head uint64
	// Return address, and a number that depends on the kind.
	what  uint64
	value uint64
}

// repriseShared is the first page of what is shared with `reprise`.
type repriseShared struct {
	magic, mode  uint64
	units        uint64 // of the ring, a power of 2; replayed: all
	seed         [32]byte
	goroutines   uint64 // replayed: one more than the largest id
	ordered      uint64 // replayed: how many ordered events
	total        uint64 // replayed: how many events
	before       uint64 // replayed: how many come before the program's end
	end          uint64 // replayed: the event that is the program's end, or repriseNone
	firsts       uint64 // replayed: where the table of first events lies, in bytes
	owners       uint64 // replayed: where the table of goroutines by ordered event lies
	size         uint64 // of the file in bytes
	_            [64]byte
	next         uint64 // place of the next event
	_            [56]byte
	read         uint64 // places before this one are free again
	_            [56]byte
	ids          uint32 // the last id of a goroutine
	timers       uint32 // the last id of a timer
	_            [56]byte
	unknown      uint64 // recorded: the number plus 1 of a system call that is not known
	consumed     uint64
	done         uint32 // why the replay ended
	reportLength uint32
	report       [2048]byte
}

// repriseG is what a goroutine has.
type repriseG struct {
	id     uint32 // 0: not recorded
	nested int32
	next   uint32 // replayed: its next event
	holds  bool   // repriseSelects
	random uint64
	timer  uint32 // of a thread's g0: the timer that runs
	held   uint32 // the number plus 1 of what repriseHold holds
}

var (
	repriseMode    uint32
	reprise        *repriseShared
	repriseUnits   unsafe.Pointer
	repriseMask    uint64
	repriseSelects mutex // held while goroutines that wait in selects are chosen
	repriseObjects [512]struct {
		mutex
		_ [56]byte
	}
	repriseTurns struct {
		mutex
		turn    uint32
		waiters []guintptr
	}
	repriseTimers     []*timeTimer
	repriseTimersMade mutex
	repriseAlone      uint32 // replayed: the next event of timers
)

// repriseInit finds out whether this process is recorded or replayed. It runs before there is a heap that could be used freely, or an environment.
func repriseInit(seed *[32]byte) {
	const name = "REPRISE_GOROUTINES="
	var path *byte
	for i := argc + 1; argv_index(argv, i) != nil; i++ {
		s := gostringnocopy(argv_index(argv, i))
		if len(s) > len(name) && s[:len(name)] == name {
			path = (*byte)(add(unsafe.Pointer(argv_index(argv, i)), uintptr(len(name))))
		}
	}
	if path == nil {
		return
	}
	fd := open(path, 2 /* O_RDWR */ |_O_CLOEXEC, 0)
	if fd < 0 {
		repriseFail("can't open what it is recorded to")
	}
	page, err := mmap(nil, 4096, _PROT_READ|_PROT_WRITE, 1 /* MAP_SHARED */, fd, 0)
	if err != 0 || (*repriseShared)(page).magic != 0x31306f67 {
		repriseFail("what it is recorded to is of another version")
	}
	all, err := mmap(nil, uintptr((*repriseShared)(page).size), _PROT_READ|_PROT_WRITE, 1, fd, 0)
	if err != 0 {
		repriseFail("can't map what it is recorded to")
	}
	closefd(fd)
	reprise = (*repriseShared)(all)
	repriseUnits = add(all, 4096)
	repriseMode = uint32(reprise.mode)
	repriseMask = reprise.units - 1
	*seed = reprise.seed
}

func repriseFail(why string) {
	print("reprise: ", why, " (", repriseMark, ")\n")
	exit(125)
}

// repriseStart begins with the main goroutine, when all that is left to do is the program's.
func repriseStart() {
	if repriseMode == 0 {
		return
	}
	gp := getg()
	gp.reprise.id = 1
	gp.reprise.random = repriseSeed(1)
	if repriseMode == repriseReplays {
		repriseTurns.waiters = make([]guintptr, reprise.goroutines)
		gp.reprise.next = repriseFirst(1)
		repriseAlone = repriseFirst(0)
		repriseOn = repriseMode
		go repriseRunTimers()
		return
	}
	reprise.ids = 1
	repriseOn = repriseMode
}

// repriseEnvironment takes out of the environment what is not the program's.
func repriseEnvironment() {
	const name = "REPRISE_GOROUTINES="
	kept := envs[:0]
	for _, s := range envs {
		if len(s) < len(name) || s[:len(name)] != name {
			kept = append(kept, s)
		}
	}
	envs = kept
}

//go:nosplit
func repriseSeed(id uint32) uint64 {
	return repriseMix(*(*uint64)(unsafe.Pointer(&reprise.seed)) ^ uint64(id)*0xd1342543de82ef95)
}

//go:nosplit
func repriseMix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// repriseRandom is the goroutine's own next random number: splitmix64, which follows from the seed, the goroutine and how many it has drawn.
//
//go:nosplit
func repriseRandom(gp *g) uint64 {
	gp.reprise.random += 0x9e3779b97f4a7c15
	return repriseMix(gp.reprise.random)
}

//go:nosplit
func repriseAt(place uint64) *repriseUnit {
	return (*repriseUnit)(add(repriseUnits, uintptr(place&repriseMask)*32))
}

//go:nosplit
func repriseEvent(index uint32) *repriseUnit {
	return (*repriseUnit)(add(repriseUnits, uintptr(index)*32))
}

//go:nosplit
func repriseFirst(id uint32) uint32 {
	return *(*uint32)(add(unsafe.Pointer(reprise), uintptr(reprise.firsts)+uintptr(id)*4))
}

//go:nosplit
func repriseOwner(turn uint32) uint32 {
	return *(*uint32)(add(unsafe.Pointer(reprise), uintptr(reprise.owners)+uintptr(turn)*4))
}

// repriseLog writes an event. It may run without a P, and on any stack.
//
//go:nosplit
func repriseLog(id uint32, kind uint8, pc uintptr, arg uint32, value uint64, data unsafe.Pointer, length uintptr) {
	place := repriseTakePlace(1 + (uint64(length)+31)/32)
	u := repriseAt(place)
	u.head = uint64(kind) | uint64(length)<<8 | uint64(id)<<32
	u.what = uint64(uint32(pc)) | uint64(arg)<<32
	u.value = value
	if length != 0 {
		repriseCopyIn(place+1, data, length)
	}
	repriseDoneAt(u, place)
}

// repriseTakePlace draws the place of an event of so many units, and waits until the ring has room for it.
//
//go:nosplit
func repriseTakePlace(units uint64) uint64 {
	place := atomic.Xadd64(&reprise.next, int64(units)) - units
	for place+units-atomic.Load64(&reprise.read) > reprise.units {
		usleep(20)
	}
	return place
}

//go:nosplit
func repriseDoneAt(u *repriseUnit, place uint64) {
	atomic.Store64(&u.mark, place+1)
}

// repriseCopyIn copies bytes into the ring, and returns the place behind them.
//
//go:nosplit
func repriseCopyIn(place uint64, data unsafe.Pointer, length uintptr) uint64 {
	for length > 0 {
		n := min(length, 32)
		memmove(unsafe.Pointer(repriseAt(place)), data, n)
		data = add(data, n)
		length -= n
		place++
	}
	return place
}

// repriseWaits ends the goroutine where its recording ended: nothing more was recorded of it.
func repriseWaits() {
	gopark(nil, nil, waitReasonZero, traceBlockForever, 1)
	throw("unreachable")
}

// repriseHas waits for ever when the goroutine has no more events.
//
//go:linkname repriseHas
//go:nosplit
func repriseHas() {
	gp := getg()
	if gp.reprise.id != 0 && gp.reprise.nested == 0 && gp.reprise.next == repriseNone {
		repriseWaits()
	}
}

// repriseTake is the goroutine's next event, which must be of this kind and place.
//
//go:nosplit
func repriseTake(gp *g, kind uint8, pc uintptr) uint32 {
	index := gp.reprise.next
	for index == repriseNone {
		usleep(10000)
	}
	u := repriseEvent(index)
	if uint8(u.head) != kind || pc != 0 && uint32(u.what) != uint32(pc) {
		repriseDiverge(gp, kind, pc, index, "")
	}
	gp.reprise.next = uint32(u.mark)
	return index
}

// repriseGone counts an event that has been replayed; with the last one the recording ends.
//
//go:nosplit
func repriseGone(index uint32) {
	if uint64(index) >= reprise.end {
		return
	}
	if atomic.Xadd64(&reprise.consumed, 1) == reprise.total && reprise.end == repriseNone {
		reprise.done = repriseFinished
		exit(0)
	}
}

// repriseEnter begins an ordered operation. It returns 0 if it is not recorded. A replay waits here for its turn.
//
//go:linkname repriseEnter
func repriseEnter(kind uint8, pc uintptr) uint64 {
	gp := getg()
	if gp.reprise.id == 0 {
		if gp == gp.m.g0 && repriseOn == repriseRecords && gp.reprise.timer != 0 {
			return 1
		}
		return 0
	}
	if gp.reprise.nested != 0 {
		return 0
	}
	if repriseOn == repriseRecords {
		return 1
	}
	if gp.reprise.next == repriseNone {
		repriseWaits()
	}
	index := repriseTake(gp, kind, pc)
	repriseAwait(gp.reprise.id, uint32(repriseEvent(index).mark>>32))
	return uint64(index) + 2
}

// repriseAwait waits until this ordered event is due.
func repriseAwait(id, turn uint32) {
	lock(&repriseTurns.mutex)
	if repriseTurns.turn == turn {
		unlock(&repriseTurns.mutex)
		return
	}
	repriseTurns.waiters[id].set(getg())
	gopark(repriseParked, nil, waitReasonZero, traceBlockSync, 2)
}

func repriseParked(*g, unsafe.Pointer) bool {
	unlock(&repriseTurns.mutex)
	return true
}

// repriseAdvance ends a turn.
func repriseAdvance() {
	lock(&repriseTurns.mutex)
	repriseTurns.turn++
	var gp *g
	if uint64(repriseTurns.turn) < reprise.ordered {
		w := &repriseTurns.waiters[repriseOwner(repriseTurns.turn)]
		gp = w.ptr()
		w.set(nil)
	}
	unlock(&repriseTurns.mutex)
	if gp != nil {
		systemstack(func() { ready(gp, 0, true) })
	}
}

// repriseOrder gives an operation its place in the order. The object is held.
//
//go:linkname repriseOrder
func repriseOrder(token uint64, kind uint8, pc uintptr, arg uint32, value uint64) {
	gp := getg()
	if token == 1 {
		repriseLog(gp.reprise.id, kind, pc, arg, value, nil, 0)
		return
	}
	index := uint32(token - 2)
	u := repriseEvent(index)
	if uint32(u.what>>32) != arg || u.value != value {
		repriseDiverge(gp, kind, pc, index, "with other values")
	}
	repriseAdvance()
	repriseGone(index)
}

// repriseAnswer is what an ordered operation was told: whether a lock was free.
//
//go:linkname repriseAnswer
func repriseAnswer(token uint64) uint64 {
	return repriseEvent(uint32(token - 2)).value
}

// repriseHold is repriseOrder of an operation on memory at an address; until repriseRelease nobody else operates there.
//
//go:linkname repriseHold
func repriseHold(token uint64, kind uint8, pc uintptr, address unsafe.Pointer) {
	which := uint32(uintptr(address) / 8 % uintptr(len(repriseObjects)))
	lock(&repriseObjects[which].mutex)
	repriseOrder(token, kind, pc, 0, 0)
	gp := getg()
	gp.reprise.nested++
	gp.reprise.held = which + 1
}

//go:linkname repriseRelease
func repriseRelease() {
	gp := getg()
	if which := gp.reprise.held; which != 0 {
		gp.reprise.held = 0
		gp.reprise.nested--
		unlock(&repriseObjects[which-1].mutex)
	}
}

// repriseNest makes that what the goroutine does is not recorded, until repriseUnnest.
//
//go:linkname repriseNest
//go:nosplit
func repriseNest() {
	getg().reprise.nested++
}

//go:linkname repriseUnnest
//go:nosplit
func repriseUnnest() {
	getg().reprise.nested--
}

// repriseRecorded says whether what this goroutine does now is recorded or replayed.
//
//go:linkname repriseRecorded
//go:nosplit
func repriseRecorded() bool {
	gp := getg()
	return gp.reprise.id != 0 && gp.reprise.nested == 0
}

// repriseValue records a value, or replays it.
//
//go:nosplit
func repriseValue(kind uint8, pc uintptr, arg uint32, value uint64) (uint32, uint64) {
	gp := getg()
	if gp.reprise.id == 0 || gp.reprise.nested != 0 {
		return arg, value
	}
	if repriseOn == repriseRecords {
		repriseLog(gp.reprise.id, kind, pc, arg, value, nil, 0)
		return arg, value
	}
	repriseHas()
	index := repriseTake(gp, kind, pc)
	u := repriseEvent(index)
	arg, value = uint32(u.what>>32), u.value
	repriseGone(index)
	return arg, value
}

// repriseChan gives an operation on a locked channel its place. If goroutines that wait in selects may be chosen, others that choose such wait until
// repriseChosen.
func repriseChan(token uint64, kind uint8, pc uintptr, c *hchan, ep unsafe.Pointer) {
	gp := getg()
	if c.recvq.first != nil || c.sendq.first != nil {
		lock(&repriseSelects)
		gp.reprise.holds = true
	}
	if gp == gp.m.g0 {
		// A timer sends: a time, on a channel that may be full.
		if c.recvq.first != nil || c.qcount < c.dataqsiz {
			repriseLog(0, repriseTimerSend, 0, gp.reprise.timer, 0, ep, c.elemtype.Size_)
		}
		return
	}
	repriseOrder(token, kind, pc, uint32(c.qcount), uint64(c.closed))
}

// repriseChosen ends what repriseChan and repriseChoose began.
func repriseChosen() {
	gp := getg()
	if gp.reprise.holds {
		gp.reprise.holds = false
		unlock(&repriseSelects)
	}
}

// repriseChoose gives a select its place, while all of its channels are locked.
func repriseChoose(token uint64, pc uintptr, cases int) {
	lock(&repriseSelects)
	getg().reprise.holds = true
	repriseOrder(token, repriseSelect, pc, uint32(cases), 0)
}

// repriseBorn gives a new goroutine its id. It runs on the system stack.
func repriseBorn(newg, parent *g, pc uintptr) {
	newg.reprise = repriseG{}
	if parent == nil || isSystemGoroutine(newg, false) {
		return
	}
	if repriseOn == repriseRecords {
		if parent.reprise.id == 0 && parent.reprise.timer == 0 {
			return
		}
		id := atomic.Xadd(&reprise.ids, 1)
		kind := uint8(repriseGo)
		arg, value := id, newg.goid
		if parent.reprise.id == 0 {
			kind, pc, value = repriseTimerGo, 0, value<<32|uint64(parent.reprise.timer)
		}
		repriseLog(parent.reprise.id, kind, pc, arg, value, nil, 0)
		newg.reprise.id = id
	} else if parent.reprise.id != 0 {
		index := repriseTake(parent, repriseGo, pc)
		u := repriseEvent(index)
		newg.reprise.id, newg.goid = uint32(u.what>>32), u.value
		newg.reprise.next = repriseFirst(newg.reprise.id)
		repriseGone(index)
	}
	newg.reprise.random = repriseSeed(newg.reprise.id)
}

// repriseRunTimers does in a replay what timers did.
func repriseRunTimers() {
	for repriseAlone != repriseNone {
		index := repriseAlone
		u := repriseEvent(index)
		repriseAlone = uint32(u.mark)
		if uint8(u.head) == repriseDeadlock {
			continue
		}
		repriseAwait(0, uint32(u.mark>>32))
		switch uint8(u.head) {
		case repriseTimerSend:
			c := repriseMadeTimer(uint32(u.what >> 32)).hchan()
			lock(&c.lock)
			lock(&repriseSelects)
			repriseAdvance()
			repriseGone(index)
			repriseSent(c, unsafe.Pointer(repriseEvent(index+1)))
		case repriseTimerGo:
			t := repriseMadeTimer(uint32(u.value))
			id, goid := uint32(u.what>>32), u.value>>32
			fn := (*funcval)(efaceOf(&t.arg).data)
			systemstack(func() {
				newg := newproc1(fn, getg(), abi.FuncPCABIInternal(repriseRunTimers), false, waitReasonZero)
				newg.goid = goid
				newg.reprise.id = id
				newg.reprise.next = repriseFirst(id)
				newg.reprise.random = repriseSeed(id)
				runqput(getg().m.p.ptr(), newg, true)
				wakep()
			})
			repriseAdvance()
			repriseGone(index)
		}
	}
	repriseWaits()
}

// repriseMadeTimer is the timer with this id. Its goroutine is about to make it, if it has not yet.
func repriseMadeTimer(id uint32) *timeTimer {
	for {
		lock(&repriseTimersMade)
		var t *timeTimer
		if int(id) < len(repriseTimers) {
			t = repriseTimers[id]
		}
		unlock(&repriseTimersMade)
		if t != nil {
			return t
		}
		Gosched()
	}
}

// repriseSent is a timer's send on a channel, which is locked, as is repriseSelects.
func repriseSent(c *hchan, ep unsafe.Pointer) {
	if sg := c.recvq.dequeue(); sg != nil {
		unlock(&repriseSelects)
		send(c, sg, ep, func() { unlock(&c.lock) }, 3)
		return
	}
	typedmemmove(c.elemtype, chanbuf(c, c.sendx), ep)
	c.sendx++
	if c.sendx == c.dataqsiz {
		c.sendx = 0
	}
	c.qcount++
	unlock(&repriseSelects)
	unlock(&c.lock)
}

// repriseTimer gives a timer its id, in whichever mode.
func repriseTimer(t *timeTimer, pc uintptr) {
	var id uint32
	if repriseOn == repriseRecords && repriseRecorded() {
		id = atomic.Xadd(&reprise.timers, 1)
	}
	id, _ = repriseValue(repriseNewTimer, pc, id, 0)
	t.reprise = id
	if repriseOn == repriseReplays {
		lock(&repriseTimersMade)
		all := repriseTimers
		if len(all) <= int(id) {
			all = make([]*timeTimer, 2*id+64)
			copy(all, repriseTimers)
		}
		all[id] = t
		repriseTimers = all
		unlock(&repriseTimersMade)
	}
}

// repriseSetTimer replays stopping or resetting of a timer: its result, and that stale times were taken out of its channel.
func repriseSetTimer(t *timeTimer, kind uint8, pc uintptr) bool {
	gp := getg()
	repriseHas()
	if uint8(repriseEvent(gp.reprise.next).head) == repriseDrain {
		c := t.hchan()
		token := repriseEnter(repriseDrain, 0)
		lock(&c.lock)
		repriseOrder(token, repriseDrain, 0, 0, 0)
		repriseEmpty(c)
		unlock(&c.lock)
	}
	_, value := repriseValue(kind, pc, 0, 0)
	return value != 0
}

func repriseEmpty(c *hchan) {
	for c.qcount > 0 {
		typedmemclr(c.elemtype, chanbuf(c, c.recvx))
		c.recvx++
		if c.recvx == c.dataqsiz {
			c.recvx = 0
		}
		c.qcount--
	}
}

// repriseTime records the wall clock and the monotonic clock together, or replays them.
//
//go:linkname repriseTime
func repriseTime(sec int64, nsec int32, mono int64, pc uintptr) (int64, int32, int64) {
	gp := getg()
	if gp.reprise.id == 0 || gp.reprise.nested != 0 {
		return sec, nsec, mono
	}
	both := [2]int64{sec, mono}
	if repriseOn == repriseRecords {
		repriseLog(gp.reprise.id, repriseNow, pc, uint32(nsec), 0, unsafe.Pointer(&both), 16)
		return sec, nsec, mono
	}
	repriseHas()
	index := repriseTake(gp, repriseNow, pc)
	u := repriseEvent(index)
	data := (*[2]int64)(unsafe.Pointer(repriseEvent(index + 1)))
	nsec, sec, mono = int32(u.what>>32), data[0], data[1]
	repriseGone(index)
	return sec, nsec, mono
}

// repriseEnds is the program's end by its own will. A replay first lets all happen that happened before.
func repriseEnds(kind uint8, code int, pc uintptr) {
	if token := repriseEnter(kind, pc); token != 0 {
		if token == 1 {
			repriseLastWrites()
			repriseOrder(token, kind, pc, uint32(code), 0)
			return
		}
		if arg := uint32(repriseEvent(uint32(token-2)).what >> 32); arg != uint32(code) {
			repriseDiverge(getg(), kind, pc, uint32(token-2), "with another status")
		}
		for atomic.Load64(&reprise.consumed) < reprise.before {
			Gosched()
		}
	}
}

var repriseNames = [...]string{"", "go", "send", "receive", "close", "select", "Mutex.Lock", "Mutex.TryLock", "RWMutex.RLock", "RWMutex.TryRLock", "RWMutex.Lock",
	"RWMutex.TryLock", "WaitGroup.Add", "WaitGroup.Wait", "Cond.Wait", "Cond.Signal", "Cond.Broadcast", "atomic operation", "time.Now", "monotonic clock",
	"system call", "network poller", "new timer", "Timer.Stop", "Timer.Reset", "emptied timer", "timer sends", "timer starts a goroutine", "descriptor's lock",
	"signal", "NumGoroutine", "exit", "panic", "deadlock", "new process", "len of a channel"}

// repriseDiverge reports that a goroutine does something that it did not do, and ends the process.
//
//go:nosplit
func repriseDiverge(gp *g, kind uint8, pc uintptr, index uint32, how string) {
	systemstack(func() {
		if !atomic.Cas(&reprise.done, 0, repriseDiverged) {
			for {
				usleep(1000000)
			}
		}
		u := repriseEvent(index)
		repriseSay("goroutine ")
		repriseSayNumber(gp.goid)
		repriseSay(" does: ")
		repriseSayWhat(kind, 0, how)
		repriseSayUser(gp)
		repriseSay("\nrecorded was: ")
		repriseSayWhat(uint8(u.head), uintptr(uint32(u.what)), "")
		repriseSay(" (event ")
		repriseSayNumber(uint64(index))
		repriseSay(")\n")
		exit(125)
	})
}

// repriseDivergeCall reports that a goroutine makes another system call, or gives the kernel something else.
func repriseDivergeCall(gp *g, index uint32, does, was uintptr) {
	if !atomic.Cas(&reprise.done, 0, repriseDiverged) {
		for {
			usleep(1000000)
		}
	}
	repriseSay("goroutine ")
	repriseSayNumber(gp.goid)
	repriseSay(" makes system call ")
	repriseSayNumber(uint64(does))
	if does == was {
		repriseSay(" with other input")
	}
	repriseSayUser(gp)
	repriseSay("\nrecorded was: system call ")
	repriseSayNumber(uint64(was))
	repriseSay(" (event ")
	repriseSayNumber(uint64(index))
	repriseSay(")\n")
	exit(125)
}

// repriseStuck reports, when nobody can go on in a replay, for whom all wait.
func repriseStuck() {
	turn := repriseTurns.turn
	if uint64(turn) >= reprise.ordered || !atomic.Cas(&reprise.done, 0, repriseDiverged) {
		return
	}
	id := repriseOwner(turn)
	index := repriseFirst(id)
	for index != repriseNone && uint32(repriseEvent(index).mark>>32) != turn {
		index = uint32(repriseEvent(index).mark)
	}
	repriseSay("all goroutines wait: recorded is next ")
	if index != repriseNone {
		u := repriseEvent(index)
		repriseSayWhat(uint8(u.head), uintptr(uint32(u.what)), "")
		repriseSay(" (event ")
		repriseSayNumber(uint64(index))
		repriseSay(")")
	}
	repriseSay(", and its goroutine")
	forEachG(func(gp *g) {
		if gp.reprise.id == id && id != 0 {
			repriseSay(" ")
			repriseSayNumber(gp.goid)
			repriseSay(" waits: ")
			repriseSay(gp.waitreason.String())
			repriseSayUser(gp)
		}
	})
	repriseSay("\n")
	exit(125)
}

func repriseSay(s string) {
	for i := 0; i < len(s); i++ {
		repriseSayByte(s[i])
	}
}

func repriseSayByte(b byte) {
	if n := reprise.reportLength; n < uint32(len(reprise.report)) {
		reprise.report[n] = b
		reprise.reportLength++
	}
}

func repriseSayNumber(n uint64) {
	var digits [20]byte
	i := len(digits)
	for {
		i--
		digits[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			break
		}
	}
	for ; i < len(digits); i++ {
		repriseSayByte(digits[i])
	}
}

func repriseSayWhat(kind uint8, pc uintptr, how string) {
	if int(kind) < len(repriseNames) {
		repriseSay(repriseNames[kind])
	}
	if how != "" {
		repriseSay(" ")
		repriseSay(how)
	}
	if f := findfunc(pc); pc != 0 && f.valid() {
		repriseSayFrame(f, pc-1)
	}
}

// repriseSayUser says where in the program, not in the library, a goroutine is that does not run.
func repriseSayUser(gp *g) {
	var u unwinder
	for u.init(gp, unwindSilentErrors); u.valid(); u.next() {
		if repriseSayFrame(u.frame.fn, u.symPC()) {
			return
		}
	}
}

// repriseSayFrame says where in the program a frame is; it reports false when all of it is the library's.
func repriseSayFrame(f funcInfo, pc uintptr) bool {
	u, uf := newInlineUnwinder(f, pc)
	for ; uf.valid(); uf = u.next(uf) {
		name := u.srcFunc(uf).name()
		if repriseIsLibrary(name) {
			continue
		}
		file, line := u.fileLine(uf)
		repriseSay(" in ")
		repriseSay(name)
		repriseSay(" (")
		repriseSay(file)
		repriseSay(":")
		repriseSayNumber(uint64(line))
		repriseSay(")")
		return true
	}
	return false
}

func repriseIsLibrary(name string) bool {
	for _, p := range [...]string{"runtime.", "sync.", "sync/", "internal/", "syscall.", "time.", "os."} {
		if len(name) >= len(p) && name[:len(p)] == p {
			return true
		}
	}
	return false
}

var _ = sys.GetCallerPC
