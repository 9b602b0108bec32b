package poll

import "unsafe"

// Recording and replaying of descriptors' locks: each change of their state is an ordered event. In a replay nobody waits in them but for a turn.

//go:linkname repriseOn runtime.repriseOn
var repriseOn uint32

//go:linkname repriseEnter runtime.repriseEnter
func repriseEnter(kind uint8, pc uintptr) uint64

//go:linkname repriseHold runtime.repriseHold
func repriseHold(token uint64, kind uint8, pc uintptr, address unsafe.Pointer)

//go:linkname repriseRelease runtime.repriseRelease
func repriseRelease()

//go:linkname repriseRecorded runtime.repriseRecorded
func repriseRecorded() bool

const repriseDescriptor = 28

// repriseBegins begins a change of the state, repriseEnds ends it.
func (mu *fdMutex) repriseBegins() bool {
	if repriseOn == 0 {
		return false
	}
	token := repriseEnter(repriseDescriptor, 0)
	if token == 0 {
		return false
	}
	_ = mu.state
	repriseHold(token, repriseDescriptor, 0, unsafe.Pointer(mu))
	return true
}

func (mu *fdMutex) repriseEnds(held bool) {
	if held {
		repriseRelease()
	}
}

// repriseReplays says whether waiting is for a turn.
func repriseReplays() bool {
	return repriseOn == 2 && repriseRecorded()
}
