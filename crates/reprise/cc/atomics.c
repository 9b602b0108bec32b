// What a program built with `reprise cc` calls for its atomic operations. Here they are what the compiler would have put in their place; where a
// recording or a replay wants to know of them, the runtime leads these functions to its own (hook/ in the runtime's sources).
#include <stdint.h>

#define VISIBLE __attribute__((visibility("default"), noinline, used))

// The runtime knows a module with this symbol as one that has the functions below.
__attribute__((visibility("default"), used)) const uint32_t reprise_cc_atomics = 1;

// The compiler's instrumentation pass has every module call this at its start.
VISIBLE void __tsan_init(void) {}

VISIBLE void __tsan_atomic_signal_fence(int order) {
    (void)order;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

#ifndef REPRISE_RACES
VISIBLE void __tsan_atomic_thread_fence(int order) {
    // The others are the processor's own behaviour; the call keeps the compiler from moving anything across it.
    if (order == __ATOMIC_SEQ_CST) __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
#endif

#define CHANGES(type, bits, name)                                                                                                          \
    VISIBLE type __tsan_atomic##bits##_##name(volatile type *at, type v, int order) {                                                  \
        (void)order;                                                                                                                       \
        return __atomic_##name(at, v, __ATOMIC_SEQ_CST);                                                                                   \
    }

#define EXCHANGES_IF(type, bits, name)                                                                                                     \
    VISIBLE int __tsan_atomic##bits##_compare_exchange_##name(volatile type *at, type *expected, type v, int order, int failure) {     \
        (void)order;                                                                                                                       \
        (void)failure;                                                                                                                     \
        return __atomic_compare_exchange_n(at, expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                        \
    }

#define OPERATIONS(type, bits)                                                                                                             \
    VISIBLE type __tsan_atomic##bits##_load(const volatile type *at, int order) {                                                      \
        (void)order;                                                                                                                       \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                                      \
    }                                                                                                                                      \
    VISIBLE void __tsan_atomic##bits##_store(volatile type *at, type v, int order) {                                                   \
        if (order == __ATOMIC_SEQ_CST) __atomic_store_n(at, v, __ATOMIC_SEQ_CST);                                                          \
        else __atomic_store_n(at, v, __ATOMIC_RELEASE);                                                                                    \
    }                                                                                                                                      \
    VISIBLE type __tsan_atomic##bits##_exchange(volatile type *at, type v, int order) {                                                \
        (void)order;                                                                                                                       \
        return __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST);                                                                               \
    }                                                                                                                                      \
    CHANGES(type, bits, fetch_add)                                                                                                         \
    CHANGES(type, bits, fetch_sub)                                                                                                         \
    CHANGES(type, bits, fetch_and)                                                                                                         \
    CHANGES(type, bits, fetch_or)                                                                                                          \
    CHANGES(type, bits, fetch_xor)                                                                                                         \
    CHANGES(type, bits, fetch_nand)                                                                                                        \
    EXCHANGES_IF(type, bits, strong)                                                                                                       \
    EXCHANGES_IF(type, bits, weak)                                                                                                         \
    VISIBLE type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type expected, type v, int order, int failure) {        \
        (void)order;                                                                                                                       \
        (void)failure;                                                                                                                     \
        __atomic_compare_exchange_n(at, &expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                              \
        return expected;                                                                                                                   \
    }

OPERATIONS(uint8_t, 8)
OPERATIONS(uint16_t, 16)
OPERATIONS(uint32_t, 32)
OPERATIONS(uint64_t, 64)

// 16 bytes: by cmpxchg16b, which the compiler would ask libatomic for.
typedef unsigned __int128 wide;

static inline wide exchange_if_equal(volatile wide *at, wide expected, wide v) {
    uint64_t low = (uint64_t)expected, high = (uint64_t)(expected >> 64);
    __asm__ volatile("lock cmpxchg16b %0"
                     : "+m"(*at), "+a"(low), "+d"(high)
                     : "b"((uint64_t)v), "c"((uint64_t)(v >> 64))
                     : "memory", "cc");
    return (wide)high << 64 | low;
}

#define CHANGES_WIDE(name, expression)                                                                                                     \
    VISIBLE wide __tsan_atomic128_##name(volatile wide *at, wide v, int order) {                                                       \
        (void)order;                                                                                                                       \
        for (wide old = 0, found;; old = found) {                                                                                          \
            found = exchange_if_equal(at, old, expression);                                                                                \
            if (found == old) return old;                                                                                                  \
        }                                                                                                                                  \
    }

CHANGES_WIDE(exchange, v)
CHANGES_WIDE(fetch_add, old + v)
CHANGES_WIDE(fetch_sub, old - v)
CHANGES_WIDE(fetch_and, old & v)
CHANGES_WIDE(fetch_or, old | v)
CHANGES_WIDE(fetch_xor, old ^ v)
CHANGES_WIDE(fetch_nand, ~(old & v))

VISIBLE wide __tsan_atomic128_load(const volatile wide *at, int order) {
    (void)order;
    return exchange_if_equal((volatile wide *)at, 0, 0);
}

VISIBLE void __tsan_atomic128_store(volatile wide *at, wide v, int order) { __tsan_atomic128_exchange(at, v, order); }

VISIBLE wide __tsan_atomic128_compare_exchange_val(volatile wide *at, wide expected, wide v, int order, int failure) {
    (void)order;
    (void)failure;
    return exchange_if_equal(at, expected, v);
}

VISIBLE int __tsan_atomic128_compare_exchange_strong(volatile wide *at, wide *expected, wide v, int order, int failure) {
    (void)order;
    (void)failure;
    wide found = exchange_if_equal(at, *expected, v);
    if (found == *expected) return 1;
    *expected = found;
    return 0;
}

VISIBLE int __tsan_atomic128_compare_exchange_weak(volatile wide *at, wide *expected, wide v, int order, int failure) {
    return __tsan_atomic128_compare_exchange_strong(at, expected, v, order, failure);
}
