// One thread writes the same pages again and again; then another one wants them, in every way in which memory can be wanted: by loads and stores,
// by system calls, as an object of libc, by calls that shape memory, in a child, in a new thread. All of that is synchronised, but for the last race.
#include "guest.h"

#include <spawn.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define BYTES (64 << 10)
#define PAGES (BYTES / 4096)
#define APART (1 << 20)
#define ROUNDS 6

static pthread_barrier_t barrier;
static unsigned char *area, *volatile wanted;
static int scenario;
static volatile unsigned raced;
static unsigned char *volatile heard;
static volatile unsigned handled;

static void meet(void) {
    int r = pthread_barrier_wait(&barrier);
    expect(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
}

static unsigned char pattern(int round, int i) {
    return (unsigned char)(round * 31 + i * 7 + i / 4096 + scenario);
}

static void fill(unsigned char *to, int round) {
    for (int i = 0; i < BYTES; i++) to[i] = pattern(round, i);
}

static bool is_filled(const unsigned char *from, int bytes) {
    for (int i = 0; i < bytes; i++) {
        if (from[i] != pattern(ROUNDS - 1, i)) return false;
    }
    return true;
}

static void handler(int signal) {
    (void)signal;
    handled += heard[4096 * 3];
}

static void *reader(void *of) {
    return (void *)(uintptr_t)is_filled(of, BYTES);
}

static void by_calls(unsigned char *at) {
    int ends[2];
    must(pipe(ends));
    unsigned char copy[8192];
    expect(must(write(ends[1], at + 4096, 8192)) == 8192);
    expect(must(read(ends[0], copy, 8192)) == 8192);
    expect(memcmp(copy, at + 4096, 8192) == 0);
    expect(must(write(ends[1], copy, 8192)) == 8192);
    expect(must(read(ends[0], at + 4096 * 9, 8192)) == 8192);
    expect(memcmp(at + 4096 * 9, at + 4096, 8192) == 0);
    must(close(ends[0]));
    must(close(ends[1]));
}

static void by_vectors(unsigned char *at) {
    int ends[2];
    must(pipe(ends));
    struct iovec *parts = (struct iovec *)at;
    // The owner's own bytes are not needed there any more.
    parts[0] = (struct iovec){at + 4096 * 2, 100};
    parts[1] = (struct iovec){at + 4096 * 5, 200};
    expect(must(writev(ends[1], parts, 2)) == 300);
    parts[0].iov_base = at + 4096 * 12;
    parts[1].iov_base = at + 4096 * 14;
    expect(must(readv(ends[0], parts, 2)) == 300);
    expect(memcmp(at + 4096 * 12, at + 4096 * 2, 100) == 0);
    expect(memcmp(at + 4096 * 14, at + 4096 * 5, 200) == 0);
    must(close(ends[0]));
    must(close(ends[1]));
}

// What the other thread does with the owner's memory.
static void want(unsigned char *at) {
    char *const environment[] = {NULL};
    switch (scenario) {
    case 0: expect(is_filled(at, BYTES)); break;
    case 1:
        for (int page = 0; page < PAGES; page++) at[page * 4096 + 5] = (unsigned char)page;
        break;
    case 2: by_calls(at); break;
    case 3: by_vectors(at); break;
    case 4: {
        // The owner has left a path there.
        int fd = must(open((char *)at + 4096 * 4, O_RDONLY));
        must(close(fd));
        expect(getcwd((char *)at + 4096 * 7, 4096) != NULL);
        expect(at[4096 * 7] == '/');
        break;
    }
    case 5: {
        pthread_mutex_t *lock = (pthread_mutex_t *)(at + 4096 * 6);
        expect(pthread_mutex_lock(lock) == 0);
        at[4096 * 6 + 100] = 77;
        expect(pthread_mutex_unlock(lock) == 0);
        break;
    }
    case 6: {
        static unsigned char copy[BYTES];
        size_t n = BYTES;
        unsigned char *to = copy, *from = at;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n)::"memory");
        expect(is_filled(copy, BYTES));
        break;
    }
    case 7:
        for (int page = 0; page < PAGES; page++) __atomic_fetch_add((int *)(at + page * 4096), 3, __ATOMIC_SEQ_CST);
        break;
    case 8: must(munmap(at + 4096 * 4, 4096 * 4)); break;
    case 9: must(mprotect(at, BYTES, PROT_READ)); break;
    case 10: {
        wanted = must(mremap(at, BYTES, 2 * BYTES, MREMAP_MAYMOVE));
        expect(is_filled(wanted, BYTES) && wanted[BYTES] == 0);
        break;
    }
    case 11: must(madvise(at + 4096 * 2, 4096 * 3, MADV_DONTNEED)); break;
    case 12: {
        pid_t child = must(fork());
        if (child == 0) _exit(is_filled(at, BYTES) ? 7 : 8);
        int status;
        expect(must(waitpid(child, &status, 0)) == child);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        break;
    }
    case 13: {
        pthread_t one;
        void *good;
        expect(pthread_create(&one, NULL, reader, at) == 0);
        expect(pthread_join(one, &good) == 0);
        expect(good != NULL);
        break;
    }
    case 14: {
        // The program's name and its argument are the owner's.
        pid_t child;
        char **arguments = (char **)(at + 4096 * 8);
        expect(posix_spawn(&child, (char *)at + 4096 * 4, NULL, NULL, arguments, environment) == 0);
        int status;
        expect(must(waitpid(child, &status, 0)) == child);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        break;
    }
    case 15:
        heard = at;
        expect(pthread_kill(pthread_self(), SIGUSR1) == 0);
        expect(handled == pattern(ROUNDS - 1, 4096 * 3));
        break;
    case 16: {
        wanted = realloc(at, 4 * BYTES);
        expect(wanted != NULL && is_filled(wanted, BYTES));
        break;
    }
    case 17:
        // The owner goes on writing.
        for (int i = 0; i < 2000; i++) raced = raced * 31 + at[i * 17 % BYTES];
        break;
    default: expect(is_filled(at, BYTES)); break;
    }
}

// What the owner finds afterwards.
static void look_again(unsigned char *at) {
    switch (scenario) {
    case 1:
        for (int page = 0; page < PAGES; page++) expect(at[page * 4096 + 5] == page);
        break;
    case 2: expect(memcmp(at + 4096 * 9, at + 4096, 8192) == 0); break;
    case 3: expect(memcmp(at + 4096 * 14, at + 4096 * 5, 200) == 0); break;
    case 4: expect(at[4096 * 7] == '/'); break;
    case 5: expect(at[4096 * 6 + 100] == 77); break;
    case 7:
        for (int page = 1; page < PAGES; page++) expect(at[page * 4096] == (unsigned char)(pattern(ROUNDS - 1, page * 4096) + 3));
        break;
    case 8: expect(at[4096 * 3] == pattern(ROUNDS - 1, 4096 * 3) && at[4096 * 8] == pattern(ROUNDS - 1, 4096 * 8)); break;
    case 9:
        expect(is_filled(at, BYTES));
        must(mprotect(at, BYTES, PROT_READ | PROT_WRITE));
        fill(at, 2);
        break;
    case 10: expect(is_filled(wanted, BYTES)); break;
    case 11:
        for (int i = 4096 * 2; i < 4096 * 5; i++) expect(at[i] == 0);
        expect(at[4096 * 5] == pattern(ROUNDS - 1, 4096 * 5));
        break;
    case 16:
        expect(is_filled(wanted, BYTES));
        free(wanted);
        break;
    case 17: break;
    default: expect(is_filled(at, BYTES)); break;
    }
}

#define SCENARIOS 18

static unsigned char *place(int which) {
    return which == 16 ? wanted : area + which * APART;
}

static void *owner(void *none) {
    (void)none;
    unsigned char on_stack[BYTES] = {0};
    for (int s = 0; s < SCENARIOS; s++) {
        unsigned char *at;
        scenario = s;
        if (s == 16) wanted = malloc(BYTES);
        at = place(s);
        for (int round = 0; round < ROUNDS; round++) {
            fill(at, round);
            if (s == 4) strcpy((char *)at + 4096 * 4, "/dev/null");
            if (s == 5) expect(pthread_mutex_init((pthread_mutex_t *)(at + 4096 * 6), NULL) == 0);
            if (s == 14) {
                strcpy((char *)at + 4096 * 4, "/bin/true");
                char **arguments = (char **)(at + 4096 * 8);
                arguments[0] = (char *)at + 4096 * 4;
                arguments[1] = NULL;
            }
            meet();
        }
        if (s == 17) {
            for (int i = 0; i < 2000; i++) at[i * 13 % BYTES] += 3;
        }
        meet();
        if (s == 14) fill(at, ROUNDS - 1);
        look_again(at);
        meet();
        if (s == 13) {
            // The owner itself makes a thread while the pages are its own again, or still.
            for (int round = 0; round < ROUNDS; round++) {
                fill(at + BYTES, round);
                meet();
            }
            pthread_t one;
            void *good;
            expect(pthread_create(&one, NULL, reader, at + BYTES) == 0);
            fill(at, 1);
            expect(pthread_join(one, &good) == 0);
            expect(good != NULL);
            meet();
        }
    }
    // A variable on its stack, and memory that is its own when it ends.
    scenario = SCENARIOS;
    for (int round = 0; round < ROUNDS; round++) {
        fill(on_stack, round);
        fill(area, round);
        wanted = on_stack;
        meet();
    }
    meet();
    return NULL;
}

static void *other(void *none) {
    (void)none;
    for (int s = 0; s < SCENARIOS; s++) {
        for (int round = 0; round < ROUNDS; round++) meet();
        want(place(s));
        meet();
        meet();
        if (s == 13) {
            for (int round = 0; round <= ROUNDS; round++) meet();
        }
    }
    for (int round = 0; round < ROUNDS; round++) meet();
    expect(is_filled(wanted, BYTES));
    meet();
    return NULL;
}

// Memory that a thread maps itself, and has written once.
static unsigned char *volatile mapped;

static void *maker(void *none) {
    (void)none;
    mapped = must(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    unsigned char *shorter = must(mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fill(mapped, ROUNDS - 1);
    fill(shorter, ROUNDS - 1);
    must(munmap(shorter + BYTES / 2, BYTES));
    must(madvise(shorter, 4096, MADV_DONTNEED));
    expect(shorter[100] == 0 && shorter[5000] == pattern(ROUNDS - 1, 5000));
    if (scenario == 5) expect(pthread_mutex_init((pthread_mutex_t *)(mapped + 4096 * 6), NULL) == 0);
    meet();
    meet();
    look_again(mapped);
    must(munmap(shorter, BYTES / 2));
    return NULL;
}

static void *taker(void *none) {
    (void)none;
    meet();
    want(mapped);
    meet();
    return NULL;
}

static void each_from_birth(void) {
    static const int wanted_ways[] = {0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15};
    for (size_t i = 0; i < sizeof wanted_ways / sizeof *wanted_ways; i++) {
        scenario = wanted_ways[i];
        handled = 0;
        pthread_t threads[2];
        expect(pthread_create(&threads[0], NULL, maker, NULL) == 0);
        expect(pthread_create(&threads[1], NULL, taker, NULL) == 0);
        for (int n = 0; n < 2; n++) expect(pthread_join(threads[n], NULL) == 0);
        if (scenario == 0) expect(is_filled(mapped, BYTES));
    }
}

int main(void) {
    signal(SIGUSR1, handler);
    area = must(mmap(NULL, SCENARIOS * APART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    expect(pthread_barrier_init(&barrier, NULL, 2) == 0);
    pthread_t threads[2];
    expect(pthread_create(&threads[0], NULL, owner, NULL) == 0);
    expect(pthread_create(&threads[1], NULL, other, NULL) == 0);
    for (int i = 0; i < 2; i++) expect(pthread_join(threads[i], NULL) == 0);
    expect(is_filled(area, BYTES));
    each_from_birth();
    say("raced %u\n", raced);
    return 0;
}
