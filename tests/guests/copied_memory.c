// Memory of every kind that a copy of a process has to get in its own way: shared with others, of a file, not for children, wiped in children, closed by
// its protection, with guard pages; and calls that bring something while others go on.
#include "guest.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

enum { PAGES = 6, LEN = PAGES * 4096, ROUNDS = 40, KINDS = 6 };
static unsigned char *kinds[KINDS];
static int pair[2];

static unsigned char *mapped(int flags, int fd) {
    unsigned char *at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, flags, fd, 0);
    expect(at != MAP_FAILED);
    return at;
}

// Receives all of a message at once, in a call that lasts while its parts come.
static void *receives(void *unused) {
    (void)unused;
    char text[64];
    for (int i = 0; i < ROUNDS; i++) {
        expect(recv(pair[0], text, sizeof text, MSG_WAITALL) == sizeof text);
        for (size_t k = 0; k < sizeof text; k++) expect(text[k] == (char)(i + k / 16));
    }
    return NULL;
}

static unsigned sum(const unsigned char *at) {
    unsigned all = 0;
    for (int i = 0; i < LEN; i++) all = all * 31 + at[i];
    return all;
}

int main(void) {
    char name[] = "mappedXXXXXX";
    int fd = must(mkstemp(name));
    must(ftruncate(fd, LEN));
    kinds[0] = mapped(MAP_SHARED | MAP_ANONYMOUS, -1);
    kinds[1] = mapped(MAP_SHARED, fd);
    kinds[2] = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    must(madvise(kinds[2], LEN, MADV_DONTFORK));
    kinds[3] = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    must(madvise(kinds[3], LEN, MADV_WIPEONFORK));
    kinds[4] = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    kinds[5] = mapped(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    // A kernel without guards (before 6.13) says EINVAL.
    madvise(kinds[5] + 4096, 4096, MADV_GUARD_INSTALL);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pthread_t receiver;
    expect(pthread_create(&receiver, NULL, receives, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        must(mprotect(kinds[4], LEN, PROT_READ | PROT_WRITE));
        for (int k = 0; k < KINDS; k++) {
            // Not where a guard may be.
            kinds[k][i % 16] = i + k;
            kinds[k][4 * 4096 + i * 7] ^= i;
        }
        must(mprotect(kinds[4], LEN, PROT_NONE));
        for (int part = 0; part < 4; part++) {
            char text[16];
            memset(text, i + part, sizeof text);
            expect(write(pair[1], text, sizeof text) == sizeof text);
            sched_yield();
        }
    }
    expect(pthread_join(receiver, NULL) == 0);
    must(mprotect(kinds[4], LEN, PROT_READ));
    for (int k = 0; k < KINDS - 1; k++) say("kind %d: %08x\n", k, sum(kinds[k]));
    // What children get of it is as ever.
    if (must(fork()) == 0) {
        say("in the child: %d %d\n", kinds[0][0], kinds[3][0]);
        _exit(0);
    }
    must(wait(NULL));
    must(unlink(name));
}
