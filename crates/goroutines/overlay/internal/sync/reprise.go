package sync

import "unsafe"

// Recording and replaying of locks: the order in which they are acquired. A replay waits for its turn, then acquires the lock; whoever has it gives it
// back before its own next turn.

//go:linkname repriseOn runtime.repriseOn
var repriseOn uint32

//go:linkname repriseEnter runtime.repriseEnter
func repriseEnter(kind uint8, pc uintptr) uint64

//go:linkname repriseOrder runtime.repriseOrder
func repriseOrder(token uint64, kind uint8, pc uintptr, arg uint32, value uint64)

//go:linkname repriseAnswer runtime.repriseAnswer
func repriseAnswer(token uint64) uint64

const (
	repriseLock    = 6
	repriseTryLock = 7
)

// lockRecorded acquires the lock of a goroutine that is recorded; it reports whether it is.
func (m *Mutex) lockRecorded(pc uintptr) bool {
	token := repriseEnter(repriseLock, pc)
	if token == 0 {
		return false
	}
	m.lockPlain()
	repriseOrder(token, repriseLock, pc, 0, 0)
	return true
}

// tryLockRecorded tries to acquire the lock of a goroutine that is recorded; it reports whether it did, and whether it is.
func (m *Mutex) tryLockRecorded(pc uintptr) (got, recorded bool) {
	token := repriseEnter(repriseTryLock, pc)
	if token == 0 {
		return false, false
	}
	value := uint64(0)
	if token == 1 {
		if m.tryLockPlain() {
			value = 1
		}
	} else if value = repriseAnswer(token); value != 0 {
		m.lockPlain()
	}
	repriseOrder(token, repriseTryLock, pc, 0, value)
	return value != 0, true
}

var _ unsafe.Pointer
