// Threads that wait for each other in calls: flock, locks of open files, System V's semaphores and messages, select and ppoll, a pipe with a name. Who comes first is
// the program's own doing.
#include "guest.h"
#include <poll.h>
#include <sys/file.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/wait.h>

enum { THREADS = 3, ROUNDS = 10 };
static char file[] = "guest-XXXXXX", fifo[64];
static int semaphore, queue, pipes[2];
// For each kind of lock.
static volatile uint64_t order[3];
static volatile long sum[3];

static void critical(int kind, long me) {
    uint64_t seen = order[kind];
    long before = sum[kind];
    burn(100 * me);
    order[kind] = mix(seen * 31 + me);
    sum[kind] = before + 1;
}

static struct flock whole(short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET};
}

static void *body(void *p) {
    long me = (intptr_t)p;
    int fd = must(open(file, O_RDWR));
    for (int i = 0; i < ROUNDS; i++) {
        must(flock(fd, LOCK_EX));
        critical(0, me);
        must(flock(fd, LOCK_UN));
        struct flock lock = whole(F_WRLCK), unlock = whole(F_UNLCK);
        must(fcntl(fd, F_OFD_SETLKW, &lock));
        critical(1, me);
        must(fcntl(fd, F_OFD_SETLK, &unlock));
        struct sembuf down = {0, -1, 0}, up = {0, 1, 0};
        must(semop(semaphore, &down, 1));
        critical(2, me);
        must(semop(semaphore, &up, 1));
    }
    return NULL;
}

static void *sends(void *unused) {
    struct {
        long type;
        int number;
    } m = {1, 0};
    for (; m.number < ROUNDS; m.number++) {
        must(msgsnd(queue, &m, sizeof m.number, 0));
        must(write(pipes[1], &m.number, 1));
    }
    int fd = must(open(fifo, O_WRONLY));
    must(write(fd, "through", 7));
    must(close(fd));
    return unused;
}

int main(void) {
    must(close(must(mkstemp(file))));
    snprintf(fifo, sizeof fifo, "%s-fifo", file);
    must(mkfifo(fifo, 0600));
    semaphore = must(semget(IPC_PRIVATE, 1, 0600));
    must(semctl(semaphore, 0, SETVAL, 1));
    queue = must(msgget(IPC_PRIVATE, 0600));
    must(pipe(pipes));
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) threads[i] = start(body, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++) finish(threads[i]);
    for (int i = 0; i < 3; i++) expect(sum[i] == THREADS * ROUNDS);
    // Locks of the process: all its threads are one owner.
    int fd = must(open(file, O_RDWR));
    struct flock lock = whole(F_WRLCK);
    must(fcntl(fd, F_SETLK, &lock));
    pthread_t sender = start(sends, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        struct {
            long type;
            int number;
        } m;
        expect(must(msgrcv(queue, &m, sizeof m.number, 0, 0)) == sizeof m.number && m.number == i);
        fd_set set;
        FD_ZERO(&set);
        FD_SET(pipes[0], &set);
        struct pollfd p = {.fd = pipes[0], .events = POLLIN};
        struct timeval long_time = {.tv_sec = 100};
        if (i % 2) expect(must(select(pipes[0] + 1, &set, NULL, NULL, &long_time)) == 1 && FD_ISSET(pipes[0], &set));
        else expect(must(ppoll(&p, 1, NULL, NULL)) == 1 && p.revents == POLLIN);
        char byte;
        must(read(pipes[0], &byte, 1));
        expect(byte == i);
    }
    char text[8] = "";
    int in = must(open(fifo, O_RDONLY));
    expect(must(read(in, text, 7)) == 7 && !strcmp(text, "through"));
    finish(sender);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    expect(must(select(pipes[0] + 1, &set, NULL, NULL, &(struct timeval){.tv_usec = 2000})) == 0 && !FD_ISSET(pipes[0], &set));
    must(unlink(file));
    must(unlink(fifo));
    must(semctl(semaphore, 0, IPC_RMID));
    must(msgctl(queue, IPC_RMID, NULL));
    say("in the orders %lu %lu %lu\n", order[0], order[1], order[2]);
}
