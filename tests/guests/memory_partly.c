// Calls that shape memory, over ranges with holes, locked pages, files that may not be written and shared memory: many of them fail in the
// middle. What they had done by then stays done, and shows.
// run: memory_partly.file
#include "guest.h"

#include <linux/capability.h>
#include <sys/resource.h>

#define PAGES 48
#define PAGE 4096ul
#define AREA ((char *)0x100000000000)
#define TARGET ((char *)0x110000000000)

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static uint64_t state = 7;

static unsigned draw(unsigned below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

static sigjmp_buf back;

static void on_fault(int signal) {
    siglongjmp(back, signal);
}

// What is at a page: its byte, or how the look at it ended.
static int look(volatile char *at) {
    int signal = sigsetjmp(back, 1);
    return signal ? -signal : (unsigned char)*at;
}

static int store(volatile char *at, char value) {
    int signal = sigsetjmp(back, 1);
    if (signal) return -signal;
    *at = value;
    return value;
}

static uint64_t sum = 14695981039346656037ull;

static void add(long value) {
    sum = (sum ^ (uint64_t)value) * 1099511628211ull;
}

static void look_at_all(char *area) {
    for (int i = 0; i < PAGES; i++) add(look(area + i * PAGE + 8));
}

static int file, readable;

// A piece of one kind or another, or a hole.
static void map_piece(char *at, size_t len) {
    int prot = PROT_READ | PROT_WRITE, flags = MAP_FIXED;
    switch (draw(8)) {
    case 0: munmap(at, len); return;
    case 1: must(mmap(at, len, prot, flags | MAP_SHARED | MAP_ANONYMOUS, -1, 0)); return;
    case 2: must(mmap(at, len, prot, flags | MAP_PRIVATE, file, draw(4) * PAGE)); return;
    case 3: must(mmap(at, len, prot, flags | MAP_SHARED, file, draw(4) * PAGE)); return;
    case 4: must(mmap(at, len, PROT_READ, flags | MAP_SHARED, readable, draw(4) * PAGE)); return;
    case 5: must(mmap(at, len, PROT_NONE, flags | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)); return;
    default: must(mmap(at, len, prot, flags | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    }
}

static void range(char *area, char **at, size_t *len) {
    unsigned first = draw(PAGES), last = first + 1 + draw(PAGES - first);
    *at = area + first * PAGE;
    *len = (last - first) * PAGE;
}

static void drop_right_to_lock(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    must(syscall(SYS_capget, &header, data));
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    must(syscall(SYS_capset, &header, data));
    struct rlimit limit;
    must(getrlimit(RLIMIT_MEMLOCK, &limit));
    limit.rlim_cur = 12 * PAGE;
    must(setrlimit(RLIMIT_MEMLOCK, &limit));
}

int main(int argc, char **argv) {
    expect(argc == 2);
    struct sigaction action = {.sa_handler = on_fault};
    must(sigaction(SIGSEGV, &action, NULL));
    must(sigaction(SIGBUS, &action, NULL));
    file = must(open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600));
    for (int i = 0; i < 20; i++) {
        char page[PAGE];
        memset(page, 'a' + i, sizeof page);
        expect(write(file, page, sizeof page) == sizeof page);
    }
    readable = must(open(argv[1], O_RDONLY));
    drop_right_to_lock();
    must(mmap(AREA, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    must(mmap(TARGET, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    const int advice[] = {MADV_DONTNEED, MADV_DONTNEED, MADV_REMOVE, MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK,
                          MADV_KEEPONFORK, MADV_DONTNEED_LOCKED, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE, MADV_POPULATE_READ,
                          MADV_COLD};
    const int prots[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
    int failed = 0;
    for (int step = 0; step < 1500; step++) {
        char *at, *to;
        size_t len, other;
        range(AREA, &at, &len);
        long r = 0;
        switch (draw(14)) {
        case 0:
        case 1:
        case 2: r = madvise(at, len, advice[draw(sizeof advice / sizeof *advice)]); break;
        case 3:
        case 4: r = mprotect(at, len, prots[draw(3)]); break;
        case 5:
        case 6: r = mlock(at, len > 3 * PAGE ? 3 * PAGE : len); break;
        case 7: r = munlock(at, len); break;
        case 8: r = msync(at, len, MS_SYNC); break;
        case 9:
            range(TARGET, &to, &other);
            r = mremap(at, len, draw(2) ? len : other, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED;
            break;
        case 10: r = mremap(at, len, len + draw(3) * PAGE, 0) == MAP_FAILED; break;
        default: map_piece(at, len > 8 * PAGE ? 8 * PAGE : len);
        }
        if (r != 0) failed++;
        add(r == 0 ? 0 : errno);
        look_at_all(AREA);
        look_at_all(TARGET);
        for (int i = 0; i < 6; i++) add(store((draw(2) ? AREA : TARGET) + draw(PAGES) * PAGE + 8, (char)draw(100)));
        if (step % 100 == 99) say("step %d: %d failed, 0x%lx\n", step, failed, sum);
    }
    expect(failed > 200);
    return 0;
}
