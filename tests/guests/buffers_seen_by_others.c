// Memory into which the kernel writes for a call that waits, as those see it who have the same memory: another process with a shared
// mapping, a process that is a clone with CLONE_VM, a thread. And memory that a process has to itself.
#include "guest.h"
#include <sched.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define ROUNDS 60
#define LEN 512

static unsigned char own[LEN];
static int data[2], back[2];

// Feeds the reader; how often its buffer had already changed when the writer looked for the first time.
static int feed(volatile unsigned char *seen) {
    unsigned char text[LEN];
    int early = 0;
    for (int i = 1; i <= ROUNDS; i++) {
        memset(text, i, LEN);
        expect(must(write(data[1], text, LEN)) == LEN);
        for (int k = 0; seen && k < LEN; k += 64) early += seen[k] == i;
        burn(2000);
        for (int k = 0; seen && k < LEN; k += 64) early += seen[k] == i;
        char c;
        expect(must(read(back[0], &c, 1)) == 1);
    }
    return early;
}

static void take(unsigned char *buffer) {
    uint64_t hash = 0;
    for (int i = 1; i <= ROUNDS; i++) {
        struct iovec parts[2] = {{buffer, 100}, {buffer + 100, LEN - 100}};
        if (i % 2) {
            expect(must(readv(data[0], parts, 2)) == LEN);
        } else {
            expect(must(read(data[0], buffer, LEN)) == LEN);
        }
        expect(buffer[0] == i && buffer[LEN - 1] == i);
        hash = mix(hash ^ hash_bytes(buffer, LEN));
        expect(must(write(back[1], "", 1)) == 1);
    }
    say("read %lu\n", hash);
}

static void reap(pid_t child) {
    int status;
    expect(must(waitpid(child, &status, __WALL)) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int in_same_memory(void *buffer) {
    say("clone saw %d changes early\n", feed(buffer));
    return 0;
}

static void *in_thread(void *buffer) {
    say("thread saw %d changes early\n", feed(buffer));
    return NULL;
}

int main(void) {
    must(pipe(data));
    must(pipe(back));
    unsigned char *shared = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t child = must(fork());
    if (child == 0) {
        say("sharer saw %d changes early\n", feed(shared));
        _exit(0);
    }
    take(shared);
    reap(child);

    child = must(fork());
    if (child == 0) _exit(feed(NULL));
    take(own);
    reap(child);

    pthread_t thread = start(in_thread, own);
    take(own);
    finish(thread);

    size_t len = 1 << 18;
    char *stack = must(mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    child = must(clone(in_same_memory, stack + len, CLONE_VM | SIGCHLD, own));
    take(own);
    reap(child);

    // Alone again.
    child = must(fork());
    if (child == 0) _exit(feed(NULL));
    take(own);
    reap(child);
    say("done\n");
}
