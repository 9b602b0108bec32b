package syscall

import _ "unsafe"

// Recording and replaying of system calls.

//go:linkname repriseOn runtime.repriseOn
var repriseOn uint32

//go:linkname repriseCall runtime.repriseCall
//go:noescape
func repriseCall(call, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2, errno uintptr)

//go:linkname repriseHas runtime.repriseHas
func repriseHas()

//go:linkname repriseForked runtime.repriseForked
func repriseForked(pid int, errno uintptr, descriptor int) (int, uintptr, int)

//go:linkname repriseNest runtime.repriseNest
func repriseNest()

//go:linkname repriseUnnest runtime.repriseUnnest
func repriseUnnest()

//go:linkname repriseRecorded runtime.repriseRecorded
func repriseRecorded() bool

//go:uintptrkeepalive
//go:nosplit
func rawSyscallNoError(trap, a1, a2, a3 uintptr) (r1, r2 uintptr) {
	r1, r2, errno := RawSyscall6(trap, a1, a2, a3, 0, 0, 0)
	if errno != 0 {
		r1 = -uintptr(errno)
	}
	return r1, r2
}
