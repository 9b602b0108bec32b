// System calls of package syscall, recorded and replayed: which memory the kernel writes for each.

package runtime

import (
	"internal/runtime/atomic"
	"internal/runtime/syscall/linux"
	"unsafe"
)

// reprisePieces are stretches of memory: what a call wrote.
type reprisePieces struct {
	at     [8]uintptr
	length [8]uintptr
	n      int
}

func (p *reprisePieces) add(at, length uintptr) {
	if at != 0 && length != 0 && p.n < len(p.at) {
		p.at[p.n], p.length[p.n] = at, length
		p.n++
	}
}

// repriseCallHead is what follows a call's event; the bytes of the pieces follow it, each from a new unit on.
type repriseCallHead struct {
	call, errno uint32
	input       uint64
	lengths     [8]uint32
	r2          uint64
	_           uint64
}

// repriseMost is how much a recorded call reads at most, in bytes. Short reads are what readers must expect.
const repriseMost = 1 << 20

// repriseCall makes a system call and records it, or replays it. Arguments may be addresses in a stack that must not move.
//
//go:linkname repriseCall
//go:nosplit
func repriseCall(call, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2, errno uintptr) {
	gp := getg()
	if gp.reprise.id == 0 || gp.reprise.nested != 0 || repriseIsPlain(call, a4) {
		return linux.Syscall6(call, a1, a2, a3, a4, a5, a6)
	}
	if repriseOn == repriseRecords {
		switch call {
		case 0, 17, 45, 318:
			if call == 318 {
				a2 = min(a2, repriseMost)
			} else {
				a3 = min(a3, repriseMost)
			}
		}
		writes := call == 1 && (a1 == 1 || a1 == 2)
		if writes {
			repriseWrites(a1)
		}
		room := repriseRoom(call, a1, a2, a3, a4, a5, a6)
		r1, r2, errno = linux.Syscall6(call, a1, a2, a3, a4, a5, a6)
		systemstack(func() { repriseLogCall(gp, call, a1, a2, a3, a4, a5, a6, r1, r2, errno, room) })
		if writes {
			atomic.Xadd(&repriseWriters[a1], -1)
		}
		return
	}
	systemstack(func() { r1, r2, errno = repriseReplayCall(gp, call, a1, a2, a3, a4, a5, a6) })
	return
}

// Threads that write to the standard output and error, by descriptor.
var repriseWriters [3]uint32

// repriseEnding is 1 when the program is ending.
var repriseEnding uint32

// repriseWrites begins a write that everybody can see. When the program is ending, it is too late for one.
//
//go:nosplit
func repriseWrites(fd uintptr) {
	atomic.Xadd(&repriseWriters[fd], 1)
	if atomic.Load(&repriseEnding) != 0 {
		atomic.Xadd(&repriseWriters[fd], -1)
		for {
			usleep(1000000)
		}
	}
}

// repriseLastWrites waits for writes that have begun, so that the program's end comes behind them in the log. One that waits for its reader ends with
// the program, and is not waited for.
func repriseLastWrites() {
	const canWrite = 4 // POLLOUT
	atomic.Store(&repriseEnding, 1)
	for fd := int32(1); fd <= 2; fd++ {
		for atomic.Load(&repriseWriters[fd]) != 0 {
			asked := struct {
				fd             int32
				events, result int16
			}{fd, canWrite, 0}
			linux.Syscall6(7 /* poll */, uintptr(unsafe.Pointer(&asked)), 1, 0, 0, 0, 0)
			if asked.result&canWrite == 0 && atomic.Load(&repriseWriters[fd]) != 0 {
				break
			}
			usleep(20)
		}
	}
}

// repriseIsPlain says whether a call is made in a replay as well, and is no event: anonymous memory.
//
//go:nosplit
func repriseIsPlain(call, flags uintptr) bool {
	return call == 9 && flags&0x20 != 0 || call == 10 || call == 11 || call == 28
}

// repriseRoom is how much the caller left for an address whose length the kernel says.
//
//go:nosplit
func repriseRoom(call, a1, a2, a3, a4, a5, a6 uintptr) uintptr {
	var at uintptr
	switch call {
	case 43, 288, 51, 52:
		at = a3
	case 55:
		at = a5
	case 45:
		at = a6
	case 47:
		if a2 != 0 {
			return uintptr(*(*uint32)(unsafe.Pointer(a2 + 8)))
		}
	}
	if at == 0 {
		return 0
	}
	return uintptr(*(*uint32)(unsafe.Pointer(at)))
}

// repriseWritten finds what a call wrote. It reports whether the call is known.
func repriseWritten(p *reprisePieces, call, a1, a2, a3, a4, a5, a6, r1, room uintptr) bool {
	length := func(at uintptr) uintptr {
		if at == 0 {
			return 0
		}
		return min(uintptr(*(*uint32)(unsafe.Pointer(at))), room)
	}
	switch call {
	case 0, 17, 217, 89, 191, 192, 193: // read, pread64, getdents64, readlink, getxattr
		if call >= 191 && call <= 193 {
			p.add(a3, r1)
		} else {
			p.add(a2, r1)
		}
	case 267: // readlinkat
		p.add(a3, r1)
	case 194, 195, 196: // listxattr
		p.add(a2, r1)
	case 79, 318: // getcwd, getrandom
		p.add(a1, r1)
	case 4, 5, 6: // stat, fstat, lstat
		p.add(a2, 144)
	case 262: // newfstatat
		p.add(a3, 144)
	case 332: // statx
		p.add(a5, 256)
	case 137, 138: // statfs
		p.add(a2, 120)
	case 22, 293: // pipe
		p.add(a1, 8)
	case 53: // socketpair
		p.add(a4, 8)
	case 63: // uname
		p.add(a1, 390)
	case 97, 229: // getrlimit, clock_getres
		p.add(a2, 16)
	case 228: // clock_gettime
		p.add(a2, 16)
	case 96: // gettimeofday
		p.add(a1, 16)
	case 99: // sysinfo
		p.add(a1, 112)
	case 100: // times
		p.add(a1, 32)
	case 302: // prlimit64
		p.add(a4, 16)
	case 98: // getrusage
		p.add(a2, 144)
	case 115: // getgroups
		if a1 != 0 {
			p.add(a2, r1*4)
		}
	case 204: // sched_getaffinity
		p.add(a3, r1)
	case 125: // capget
		p.add(a2, 24)
	case 61: // wait4
		if r1 != 0 {
			p.add(a2, 4)
			p.add(a4, 144)
		}
	case 247: // waitid
		p.add(a3, 128)
		p.add(a5, 144)
	case 43, 288, 51, 52: // accept, accept4, getsockname, getpeername
		p.add(a2, length(a3))
		p.add(a3, 4)
	case 55: // getsockopt
		p.add(a4, length(a5))
		p.add(a5, 4)
	case 45: // recvfrom
		p.add(a2, r1)
		p.add(a5, length(a6))
		p.add(a6, 4)
	case 47: // recvmsg
		m := (*[7]uintptr)(unsafe.Pointer(a2))
		if m[0] != 0 {
			p.add(m[0], min(uintptr(uint32(m[1])), room))
		}
		p.add(m[4], m[5])
		p.add(a2+8, 4)
		p.add(a2+40, 12)
		repriseScatter(p, m[2], m[3], r1)
	case 19, 295: // readv, preadv
		repriseScatter(p, a2, a3, r1)
	case 40: // sendfile
		p.add(a3, 8)
	case 275, 326: // splice, copy_file_range
		p.add(a2, 8)
		p.add(a4, 8)
	case 7, 271: // poll, ppoll
		p.add(a1, a2*8)
	case 232, 281: // epoll_wait, epoll_pwait
		p.add(a2, r1*12)
	case 16: // ioctl
		switch a2 {
		case 0x5401:
			p.add(a3, 60)
		case 0x5413:
			p.add(a3, 8)
		case 0x541b, 0x5411, 0x540f, 0x80045430:
			p.add(a3, 4)
		case 0x5402, 0x5403, 0x5404, 0x5410, 0x5414, 0x540e, 0x5422, 0x5421:
		default:
			return false
		}
	case 72: // fcntl
		if a2 == 5 || a2 == 36 {
			p.add(a3, 32)
		}
	case 1, 2, 3, 8, 18, 20, 21, 24, 32, 33, 35, 39, 41, 42, 44, 46, 48, 49, 50, 54, 62, 74, 75, 76, 77, 80, 81, 82, 83, 84, 85, 86, 87, 88, 90, 91, 92, 93, 94, 95,
		102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 116, 117, 119, 121, 124, 132, 133, 140, 141, 160, 161, 162, 186, 188, 189, 190,
		197, 198, 199, 200, 203, 221, 233, 235, 254, 255, 257, 258, 259, 260, 261, 263, 264, 265, 266, 268, 269, 277, 280, 285, 290, 291, 292, 294,
		296, 306, 307, 316, 319, 424, 434, 436, 437, 439, 73, 187, 253:
	default:
		return false
	}
	return true
}

func repriseScatter(p *reprisePieces, vectors, count, left uintptr) {
	for i := uintptr(0); i < count && left > 0; i++ {
		v := (*[2]uintptr)(unsafe.Pointer(vectors + i*16))
		n := min(v[1], left)
		p.add(v[0], n)
		left -= n
	}
}

// repriseInput is a hash of what the kernel reads for a call: FNV-1a over words.
func repriseInput(call, a1, a2, a3 uintptr) uint64 {
	h := uint64(call) ^ 0xcbf29ce484222325
	mix := func(w uint64) { h = (h ^ w) * 0x100000001b3 }
	bytes := func(at, n uintptr) {
		for ; n >= 8; at, n = at+8, n-8 {
			mix(*(*uint64)(unsafe.Pointer(at)))
		}
		for ; n > 0; at, n = at+1, n-1 {
			mix(uint64(*(*byte)(unsafe.Pointer(at))))
		}
	}
	path := func(at uintptr) {
		for at != 0 && *(*byte)(unsafe.Pointer(at)) != 0 {
			mix(uint64(*(*byte)(unsafe.Pointer(at))))
			at++
		}
	}
	switch call {
	case 1, 18, 44: // write, pwrite64, sendto
		mix(uint64(a1))
		mix(uint64(a3))
		bytes(a2, a3)
	case 257, 262, 263, 267: // openat, newfstatat, unlinkat, readlinkat
		path(a2)
	case 0, 3, 17, 45, 46, 47, 48, 49, 50, 288:
		mix(uint64(a1))
	}
	return h
}

// repriseLogCall may run without a P, on the system stack.
//
//go:nowritebarrierrec
func repriseLogCall(gp *g, call, a1, a2, a3, a4, a5, a6, r1, r2, errno, room uintptr) {
	var pieces reprisePieces
	var head repriseCallHead
	if !repriseWritten(&pieces, call, a1, a2, a3, a4, a5, a6, r1, room) {
		reprise.unknown = uint64(call) + 1
	}
	if errno != 0 {
		pieces.n = 0
	}
	head.call, head.errno, head.r2 = uint32(call), uint32(errno), uint64(r2)
	head.input = repriseInput(call, a1, a2, a3)
	units := uint64(3)
	for i := 0; i < pieces.n; i++ {
		head.lengths[i] = uint32(pieces.length[i])
		units += (uint64(pieces.length[i]) + 31) / 32
	}
	place := repriseTakePlace(units)
	u := repriseAt(place)
	u.head = repriseSyscall | (units-1)*32<<8 | uint64(gp.reprise.id)<<32
	u.what = uint64(call) << 32
	u.value = uint64(r1)
	at := place + 1
	at = repriseCopyIn(at, unsafe.Pointer(&head), unsafe.Sizeof(head))
	for i := 0; i < pieces.n; i++ {
		at = repriseCopyIn(at, unsafe.Pointer(pieces.at[i]), pieces.length[i])
	}
	repriseDoneAt(u, place)
}

// repriseReplayCall gives a call its recorded result. What goes to the standard output and error is written once more.
func repriseReplayCall(gp *g, call, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2, errno uintptr) {
	index := repriseTake(gp, repriseSyscall, 0)
	u := repriseEvent(index)
	head := (*repriseCallHead)(unsafe.Pointer(repriseEvent(index + 1)))
	if head.call != uint32(call) || head.input != repriseInput(call, a1, a2, a3) {
		repriseDivergeCall(gp, index, call, uintptr(head.call))
	}
	r1, r2, errno = uintptr(u.value), uintptr(head.r2), uintptr(head.errno)
	if errno == 0 {
		var pieces reprisePieces
		repriseWritten(&pieces, call, a1, a2, a3, a4, a5, a6, r1, 1<<20)
		at := index + 3
		for i := 0; i < len(head.lengths) && head.lengths[i] != 0; i++ {
			n := uintptr(head.lengths[i])
			if i < pieces.n {
				memmove(unsafe.Pointer(pieces.at[i]), unsafe.Pointer(repriseEvent(at)), n)
			}
			at += uint32((n + 31) / 32)
		}
		if call == 1 && (a1 == 1 || a1 == 2) {
			for done := uintptr(0); done < r1; {
				n, _, e := linux.Syscall6(call, a1, a2+done, r1-done, 0, 0, 0)
				if e != 0 {
					break
				}
				done += n
			}
		}
	}
	repriseGone(index)
	return
}

// repriseForked records what became of a new process, or replays it: nobody is made then.
//
//go:linkname repriseForked
func repriseForked(pid int, errno uintptr, descriptor int) (int, uintptr, int) {
	both, value := repriseValue(repriseFork, 0, uint32(errno), uint64(uint32(pid))|uint64(descriptor)<<32)
	return int(int32(value)), uintptr(both), int(int32(value >> 32))
}
