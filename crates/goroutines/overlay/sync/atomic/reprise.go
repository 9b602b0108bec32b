package atomic

import (
	"internal/runtime/sys"
	"unsafe"
)

// Recording and replaying of atomic operations: their order on each address.

//go:linkname repriseOn runtime.repriseOn
var repriseOn uint32

//go:linkname repriseEnter runtime.repriseEnter
func repriseEnter(kind uint8, pc uintptr) uint64

//go:linkname repriseHold runtime.repriseHold
func repriseHold(token uint64, kind uint8, pc uintptr, address unsafe.Pointer)

//go:linkname repriseRelease runtime.repriseRelease
func repriseRelease()

const repriseAtomic = 17

// repriseBegins begins an operation, which repriseRelease ends; it reports whether that is recorded.
func repriseBegins(pc uintptr, address unsafe.Pointer) bool {
	token := repriseEnter(repriseAtomic, pc)
	if token == 0 {
		return false
	}
	repriseHold(token, repriseAtomic, pc, address)
	return true
}

func repriseLoadInt32(addr *int32) int32 {
	if repriseOn != 0 {
		return recordedLoadInt32(addr)
	}
	return LoadInt32(addr)
}

func recordedLoadInt32(addr *int32) (result int32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = LoadInt32(addr)
	if held {
		repriseRelease()
	}
	return result
}

func repriseStoreInt32(addr *int32, val int32) {
	if repriseOn != 0 {
		recordedStoreInt32(addr, val)
		return
	}
	StoreInt32(addr, val)
}

func recordedStoreInt32(addr *int32, val int32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	StoreInt32(addr, val)
	if held {
		repriseRelease()
	}

}

func repriseSwapInt32(addr *int32, new int32) int32 {
	if repriseOn != 0 {
		return recordedSwapInt32(addr, new)
	}
	return SwapInt32(addr, new)
}

func recordedSwapInt32(addr *int32, new int32) (result int32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = SwapInt32(addr, new)
	if held {
		repriseRelease()
	}
	return result
}

func repriseCompareAndSwapInt32(addr *int32, old, new int32) bool {
	if repriseOn != 0 {
		return recordedCompareAndSwapInt32(addr, old, new)
	}
	return CompareAndSwapInt32(addr, old, new)
}

func recordedCompareAndSwapInt32(addr *int32, old, new int32) (result bool) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = CompareAndSwapInt32(addr, old, new)
	if held {
		repriseRelease()
	}
	return result
}

func repriseAddInt32(addr *int32, delta int32) int32 {
	if repriseOn != 0 {
		return recordedAddInt32(addr, delta)
	}
	return AddInt32(addr, delta)
}

func recordedAddInt32(addr *int32, delta int32) (result int32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = AddInt32(addr, delta)
	if held {
		repriseRelease()
	}
	return result
}

func repriseAndInt32(addr *int32, mask int32) int32 {
	if repriseOn != 0 {
		return recordedAndInt32(addr, mask)
	}
	return AndInt32(addr, mask)
}

func recordedAndInt32(addr *int32, mask int32) (result int32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = AndInt32(addr, mask)
	if held {
		repriseRelease()
	}
	return result
}

func repriseOrInt32(addr *int32, mask int32) int32 {
	if repriseOn != 0 {
		return recordedOrInt32(addr, mask)
	}
	return OrInt32(addr, mask)
}

func recordedOrInt32(addr *int32, mask int32) (result int32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = OrInt32(addr, mask)
	if held {
		repriseRelease()
	}
	return result
}

func repriseLoadInt64(addr *int64) int64 {
	if repriseOn != 0 {
		return recordedLoadInt64(addr)
	}
	return LoadInt64(addr)
}

func recordedLoadInt64(addr *int64) (result int64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = LoadInt64(addr)
	if held {
		repriseRelease()
	}
	return result
}

func repriseStoreInt64(addr *int64, val int64) {
	if repriseOn != 0 {
		recordedStoreInt64(addr, val)
		return
	}
	StoreInt64(addr, val)
}

func recordedStoreInt64(addr *int64, val int64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	StoreInt64(addr, val)
	if held {
		repriseRelease()
	}

}

func repriseSwapInt64(addr *int64, new int64) int64 {
	if repriseOn != 0 {
		return recordedSwapInt64(addr, new)
	}
	return SwapInt64(addr, new)
}

func recordedSwapInt64(addr *int64, new int64) (result int64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = SwapInt64(addr, new)
	if held {
		repriseRelease()
	}
	return result
}

func repriseCompareAndSwapInt64(addr *int64, old, new int64) bool {
	if repriseOn != 0 {
		return recordedCompareAndSwapInt64(addr, old, new)
	}
	return CompareAndSwapInt64(addr, old, new)
}

func recordedCompareAndSwapInt64(addr *int64, old, new int64) (result bool) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = CompareAndSwapInt64(addr, old, new)
	if held {
		repriseRelease()
	}
	return result
}

func repriseAddInt64(addr *int64, delta int64) int64 {
	if repriseOn != 0 {
		return recordedAddInt64(addr, delta)
	}
	return AddInt64(addr, delta)
}

func recordedAddInt64(addr *int64, delta int64) (result int64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = AddInt64(addr, delta)
	if held {
		repriseRelease()
	}
	return result
}

func repriseAndInt64(addr *int64, mask int64) int64 {
	if repriseOn != 0 {
		return recordedAndInt64(addr, mask)
	}
	return AndInt64(addr, mask)
}

func recordedAndInt64(addr *int64, mask int64) (result int64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = AndInt64(addr, mask)
	if held {
		repriseRelease()
	}
	return result
}

func repriseOrInt64(addr *int64, mask int64) int64 {
	if repriseOn != 0 {
		return recordedOrInt64(addr, mask)
	}
	return OrInt64(addr, mask)
}

func recordedOrInt64(addr *int64, mask int64) (result int64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = OrInt64(addr, mask)
	if held {
		repriseRelease()
	}
	return result
}

func repriseLoadUint32(addr *uint32) uint32 {
	if repriseOn != 0 {
		return recordedLoadUint32(addr)
	}
	return LoadUint32(addr)
}

func recordedLoadUint32(addr *uint32) (result uint32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = LoadUint32(addr)
	if held {
		repriseRelease()
	}
	return result
}

func repriseStoreUint32(addr *uint32, val uint32) {
	if repriseOn != 0 {
		recordedStoreUint32(addr, val)
		return
	}
	StoreUint32(addr, val)
}

func recordedStoreUint32(addr *uint32, val uint32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	StoreUint32(addr, val)
	if held {
		repriseRelease()
	}

}

func repriseSwapUint32(addr *uint32, new uint32) uint32 {
	if repriseOn != 0 {
		return recordedSwapUint32(addr, new)
	}
	return SwapUint32(addr, new)
}

func recordedSwapUint32(addr *uint32, new uint32) (result uint32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = SwapUint32(addr, new)
	if held {
		repriseRelease()
	}
	return result
}

func repriseCompareAndSwapUint32(addr *uint32, old, new uint32) bool {
	if repriseOn != 0 {
		return recordedCompareAndSwapUint32(addr, old, new)
	}
	return CompareAndSwapUint32(addr, old, new)
}

func recordedCompareAndSwapUint32(addr *uint32, old, new uint32) (result bool) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = CompareAndSwapUint32(addr, old, new)
	if held {
		repriseRelease()
	}
	return result
}

func repriseAddUint32(addr *uint32, delta uint32) uint32 {
	if repriseOn != 0 {
		return recordedAddUint32(addr, delta)
	}
	return AddUint32(addr, delta)
}

func recordedAddUint32(addr *uint32, delta uint32) (result uint32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = AddUint32(addr, delta)
	if held {
		repriseRelease()
	}
	return result
}

func repriseAndUint32(addr *uint32, mask uint32) uint32 {
	if repriseOn != 0 {
		return recordedAndUint32(addr, mask)
	}
	return AndUint32(addr, mask)
}

func recordedAndUint32(addr *uint32, mask uint32) (result uint32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = AndUint32(addr, mask)
	if held {
		repriseRelease()
	}
	return result
}

func repriseOrUint32(addr *uint32, mask uint32) uint32 {
	if repriseOn != 0 {
		return recordedOrUint32(addr, mask)
	}
	return OrUint32(addr, mask)
}

func recordedOrUint32(addr *uint32, mask uint32) (result uint32) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = OrUint32(addr, mask)
	if held {
		repriseRelease()
	}
	return result
}

func repriseLoadUint64(addr *uint64) uint64 {
	if repriseOn != 0 {
		return recordedLoadUint64(addr)
	}
	return LoadUint64(addr)
}

func recordedLoadUint64(addr *uint64) (result uint64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = LoadUint64(addr)
	if held {
		repriseRelease()
	}
	return result
}

func repriseStoreUint64(addr *uint64, val uint64) {
	if repriseOn != 0 {
		recordedStoreUint64(addr, val)
		return
	}
	StoreUint64(addr, val)
}

func recordedStoreUint64(addr *uint64, val uint64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	StoreUint64(addr, val)
	if held {
		repriseRelease()
	}

}

func repriseSwapUint64(addr *uint64, new uint64) uint64 {
	if repriseOn != 0 {
		return recordedSwapUint64(addr, new)
	}
	return SwapUint64(addr, new)
}

func recordedSwapUint64(addr *uint64, new uint64) (result uint64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = SwapUint64(addr, new)
	if held {
		repriseRelease()
	}
	return result
}

func repriseCompareAndSwapUint64(addr *uint64, old, new uint64) bool {
	if repriseOn != 0 {
		return recordedCompareAndSwapUint64(addr, old, new)
	}
	return CompareAndSwapUint64(addr, old, new)
}

func recordedCompareAndSwapUint64(addr *uint64, old, new uint64) (result bool) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = CompareAndSwapUint64(addr, old, new)
	if held {
		repriseRelease()
	}
	return result
}

func repriseAddUint64(addr *uint64, delta uint64) uint64 {
	if repriseOn != 0 {
		return recordedAddUint64(addr, delta)
	}
	return AddUint64(addr, delta)
}

func recordedAddUint64(addr *uint64, delta uint64) (result uint64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = AddUint64(addr, delta)
	if held {
		repriseRelease()
	}
	return result
}

func repriseAndUint64(addr *uint64, mask uint64) uint64 {
	if repriseOn != 0 {
		return recordedAndUint64(addr, mask)
	}
	return AndUint64(addr, mask)
}

func recordedAndUint64(addr *uint64, mask uint64) (result uint64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = AndUint64(addr, mask)
	if held {
		repriseRelease()
	}
	return result
}

func repriseOrUint64(addr *uint64, mask uint64) uint64 {
	if repriseOn != 0 {
		return recordedOrUint64(addr, mask)
	}
	return OrUint64(addr, mask)
}

func recordedOrUint64(addr *uint64, mask uint64) (result uint64) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = OrUint64(addr, mask)
	if held {
		repriseRelease()
	}
	return result
}

func repriseLoadUintptr(addr *uintptr) uintptr {
	if repriseOn != 0 {
		return recordedLoadUintptr(addr)
	}
	return LoadUintptr(addr)
}

func recordedLoadUintptr(addr *uintptr) (result uintptr) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = LoadUintptr(addr)
	if held {
		repriseRelease()
	}
	return result
}

func repriseStoreUintptr(addr *uintptr, val uintptr) {
	if repriseOn != 0 {
		recordedStoreUintptr(addr, val)
		return
	}
	StoreUintptr(addr, val)
}

func recordedStoreUintptr(addr *uintptr, val uintptr) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	StoreUintptr(addr, val)
	if held {
		repriseRelease()
	}

}

func repriseSwapUintptr(addr *uintptr, new uintptr) uintptr {
	if repriseOn != 0 {
		return recordedSwapUintptr(addr, new)
	}
	return SwapUintptr(addr, new)
}

func recordedSwapUintptr(addr *uintptr, new uintptr) (result uintptr) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = SwapUintptr(addr, new)
	if held {
		repriseRelease()
	}
	return result
}

func repriseCompareAndSwapUintptr(addr *uintptr, old, new uintptr) bool {
	if repriseOn != 0 {
		return recordedCompareAndSwapUintptr(addr, old, new)
	}
	return CompareAndSwapUintptr(addr, old, new)
}

func recordedCompareAndSwapUintptr(addr *uintptr, old, new uintptr) (result bool) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = CompareAndSwapUintptr(addr, old, new)
	if held {
		repriseRelease()
	}
	return result
}

func repriseAddUintptr(addr *uintptr, delta uintptr) uintptr {
	if repriseOn != 0 {
		return recordedAddUintptr(addr, delta)
	}
	return AddUintptr(addr, delta)
}

func recordedAddUintptr(addr *uintptr, delta uintptr) (result uintptr) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = AddUintptr(addr, delta)
	if held {
		repriseRelease()
	}
	return result
}

func repriseAndUintptr(addr *uintptr, mask uintptr) uintptr {
	if repriseOn != 0 {
		return recordedAndUintptr(addr, mask)
	}
	return AndUintptr(addr, mask)
}

func recordedAndUintptr(addr *uintptr, mask uintptr) (result uintptr) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = AndUintptr(addr, mask)
	if held {
		repriseRelease()
	}
	return result
}

func repriseOrUintptr(addr *uintptr, mask uintptr) uintptr {
	if repriseOn != 0 {
		return recordedOrUintptr(addr, mask)
	}
	return OrUintptr(addr, mask)
}

func recordedOrUintptr(addr *uintptr, mask uintptr) (result uintptr) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = OrUintptr(addr, mask)
	if held {
		repriseRelease()
	}
	return result
}

func repriseLoadPointer(addr *unsafe.Pointer) unsafe.Pointer {
	if repriseOn != 0 {
		return recordedLoadPointer(addr)
	}
	return LoadPointer(addr)
}

func recordedLoadPointer(addr *unsafe.Pointer) (result unsafe.Pointer) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = LoadPointer(addr)
	if held {
		repriseRelease()
	}
	return result
}

func repriseStorePointer(addr *unsafe.Pointer, val unsafe.Pointer) {
	if repriseOn != 0 {
		recordedStorePointer(addr, val)
		return
	}
	StorePointer(addr, val)
}

func recordedStorePointer(addr *unsafe.Pointer, val unsafe.Pointer) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	StorePointer(addr, val)
	if held {
		repriseRelease()
	}

}

func repriseSwapPointer(addr *unsafe.Pointer, new unsafe.Pointer) unsafe.Pointer {
	if repriseOn != 0 {
		return recordedSwapPointer(addr, new)
	}
	return SwapPointer(addr, new)
}

func recordedSwapPointer(addr *unsafe.Pointer, new unsafe.Pointer) (result unsafe.Pointer) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = SwapPointer(addr, new)
	if held {
		repriseRelease()
	}
	return result
}

func repriseCompareAndSwapPointer(addr *unsafe.Pointer, old, new unsafe.Pointer) bool {
	if repriseOn != 0 {
		return recordedCompareAndSwapPointer(addr, old, new)
	}
	return CompareAndSwapPointer(addr, old, new)
}

func recordedCompareAndSwapPointer(addr *unsafe.Pointer, old, new unsafe.Pointer) (result bool) {
	_ = *addr
	held := repriseBegins(sys.GetCallerPC(), unsafe.Pointer(addr))
	result = CompareAndSwapPointer(addr, old, new)
	if held {
		repriseRelease()
	}
	return result
}
