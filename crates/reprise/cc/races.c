// What a program built with `reprise cc --races` calls besides (atomics.c comes before this): before it reads or writes memory that other threads may
// reach, a function of its own that does nothing. In a replay that looks for races the runtime writes a jump over it (races/watch.rs in the
// runtime's sources), for which there is room.

// The runtime knows a module with this symbol as one that has the functions below.
__attribute__((visibility("default"), used)) const uint32_t reprise_cc_races = 1;

#define FUNCTION(name, body, size)                                                                                                         \
    __asm__(".pushsection .text.reprise_races,\"ax\",@progbits\n"                                                                         \
            ".globl " name "\n"                                                                                                            \
            ".type " name ",@function\n"                                                                                                   \
            ".p2align 4\n" name ":\n" body "\n"                                                                                            \
            ".org " name " + " #size ", 0xcc\n"                                                                                            \
            ".size " name ", " #size "\n"                                                                                                  \
            ".popsection\n");

#define ACCESS(name) FUNCTION("__tsan_" #name, "ret", 16)

ACCESS(read1)
ACCESS(read2)
ACCESS(read4)
ACCESS(read8)
ACCESS(read16)
ACCESS(write1)
ACCESS(write2)
ACCESS(write4)
ACCESS(write8)
ACCESS(write16)
ACCESS(unaligned_read2)
ACCESS(unaligned_read4)
ACCESS(unaligned_read8)
ACCESS(unaligned_read16)
ACCESS(unaligned_write2)
ACCESS(unaligned_write4)
ACCESS(unaligned_write8)
ACCESS(unaligned_write16)
ACCESS(read_write1)
ACCESS(read_write2)
ACCESS(read_write4)
ACCESS(read_write8)
ACCESS(read_write16)
ACCESS(unaligned_read_write2)
ACCESS(unaligned_read_write4)
ACCESS(unaligned_read_write8)
ACCESS(unaligned_read_write16)
ACCESS(vptr_read)
ACCESS(vptr_update)
ACCESS(read_range)
ACCESS(write_range)

// Changes no flag, so that nothing shows whether the runtime does it.
FUNCTION("__tsan_atomic_thread_fence", "mfence\nret", 16)

// What the program and the compiler copy and fill. Where the compiler calls these functions by their own names, the linker leads the calls here
// (--wrap); newer ones call others.
#define MEMORY(name)                                                                                                                       \
    __asm__(".globl __wrap_" #name ", __tsan_" #name "\n"                                                                                  \
            ".hidden __wrap_" #name "\n"                                                                                                   \
            ".set __wrap_" #name ", reprise_cc_" #name "\n"                                                                                \
            ".set __tsan_" #name ", reprise_cc_" #name "\n");                                                                              \
    FUNCTION("reprise_cc_" #name, "jmp 1f\n.org reprise_cc_" #name " + 48, 0xcc\n1: jmp __real_" #name "@PLT", 64)

MEMORY(memcpy)
MEMORY(memmove)
MEMORY(memset)
