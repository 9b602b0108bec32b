package sync

import "unsafe"

// Recording and replaying: the order in which locks are acquired and counters change.

//go:linkname repriseOn runtime.repriseOn
var repriseOn uint32

//go:linkname repriseEnter runtime.repriseEnter
func repriseEnter(kind uint8, pc uintptr) uint64

//go:linkname repriseOrder runtime.repriseOrder
func repriseOrder(token uint64, kind uint8, pc uintptr, arg uint32, value uint64)

//go:linkname repriseAnswer runtime.repriseAnswer
func repriseAnswer(token uint64) uint64

//go:linkname repriseHold runtime.repriseHold
func repriseHold(token uint64, kind uint8, pc uintptr, address unsafe.Pointer)

//go:linkname repriseRelease runtime.repriseRelease
func repriseRelease()

//go:linkname repriseNest runtime.repriseNest
func repriseNest()

//go:linkname repriseUnnest runtime.repriseUnnest
func repriseUnnest()

//go:linkname repriseRecorded runtime.repriseRecorded
func repriseRecorded() bool

const (
	repriseRLock    = 8
	repriseTryRLock = 9
	repriseWLock    = 10
	repriseTryWLock = 11
	repriseAdd      = 12
	repriseWait     = 13
)

// repriseAcquire acquires something; it reports whether that is recorded.
func repriseAcquire(kind uint8, pc uintptr, acquire func()) bool {
	token := repriseEnter(kind, pc)
	if token == 0 {
		return false
	}
	repriseNest()
	acquire()
	repriseUnnest()
	repriseOrder(token, kind, pc, 0, 0)
	return true
}

// repriseTry tries to acquire something; a replay acquires what the recording did.
func repriseTry(kind uint8, pc uintptr, try func() bool, acquire func()) (got, recorded bool) {
	token := repriseEnter(kind, pc)
	if token == 0 {
		return false, false
	}
	repriseNest()
	value := uint64(0)
	if token == 1 {
		if try() {
			value = 1
		}
	} else if value = repriseAnswer(token); value != 0 {
		acquire()
	}
	repriseUnnest()
	repriseOrder(token, kind, pc, 0, value)
	return value != 0, true
}

// repriseBegins begins an operation on memory at an address, which repriseRelease ends; it reports whether that is recorded.
func repriseBegins(kind uint8, pc uintptr, address unsafe.Pointer) bool {
	token := repriseEnter(kind, pc)
	if token == 0 {
		return false
	}
	repriseHold(token, kind, pc, address)
	return true
}
