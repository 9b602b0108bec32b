// Processes that are killed in the middle of a computation, while they write to memory that others share: what they wrote last is there
// for the others. They say nothing after it, pass no gate, and nothing tells how far they came.
//   killed_while_sharing SIGNALS PROCESSES     by their own timers (SIGNALS: alarm, vtalrm), so many of them one after another
// run: alarm 3
// run: vtalrm 2
#include "guest.h"
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>

enum { WORDS = 512 };

static void write_all(uint64_t from, uint64_t to, volatile uint64_t *anonymous, volatile uint64_t *file, volatile uint64_t *segment) {
    for (uint64_t i = from; i != to; i++) {
        anonymous[i % WORDS] = mix(anonymous[(i + 1) % WORDS] + i);
        file[i % WORDS] = i;
        segment[i % (WORDS / 2)] = mix(i);
    }
}

int main(int argc, char **argv) {
    bool virtual = argc > 1 && strcmp(argv[1], "vtalrm") == 0;
    long processes = number(argc, argv, 2, 2);
    size_t size = WORDS * sizeof(uint64_t);
    int shared = MAP_SHARED, both = PROT_READ | PROT_WRITE;
    uint64_t *anonymous = must(mmap(NULL, size, both, shared | MAP_ANONYMOUS, -1, 0));
    int fd = must(memfd_create("file", 0));
    must(ftruncate(fd, size));
    uint64_t *file = must(mmap(NULL, size, both, shared, fd, 0));
    // The parent can only read here.
    const uint64_t *reading = must(mmap(NULL, size, PROT_READ, shared, fd, 0));
    int id = must(shmget(IPC_PRIVATE, size, IPC_CREAT | 0600));
    uint64_t *segment = must(shmat(id, NULL, 0));
    must(shmctl(id, IPC_RMID, NULL));
    // Another one that looks at it all the time, and learns of it only when it runs again.
    int ends[2];
    must(pipe(ends));
    pid_t witness = must(fork());
    if (witness == 0) {
        must(close(ends[1]));
        char byte;
        while (must(read(ends[0], &byte, 1)) == 1) {
            say("the witness sees %#lx\n", (unsigned long)hash_bytes(anonymous, size));
        }
        _exit(0);
    }
    for (long i = 0; i < processes; i++) {
        pid_t child = must(fork());
        if (child == 0) {
            must(munmap((void *)reading, size));
            struct itimerval soon = {.it_value.tv_usec = 20000 + i * 3000};
            // On a busy machine the timer may be over at once: something is written by then.
            write_all(1, WORDS, anonymous, file, segment);
            must(setitimer(virtual ? ITIMER_VIRTUAL : ITIMER_REAL, &soon, NULL));
            write_all(WORDS, 0, anonymous, file, segment);
        }
        int status;
        must(waitpid(child, &status, 0));
        expect(WIFSIGNALED(status) && WTERMSIG(status) == (virtual ? SIGVTALRM : SIGALRM));
        expect(anonymous[1] != 0 && reading[1] != 0 && segment[1] != 0);
        say("killed: %#lx %#lx %#lx\n", (unsigned long)hash_bytes(anonymous, size),
            (unsigned long)hash_bytes(reading, size), (unsigned long)hash_bytes(segment, size));
        must(write(ends[1], "x", 1));
    }
    must(close(ends[1]));
    must(waitpid(witness, NULL, 0));
    return 0;
}
