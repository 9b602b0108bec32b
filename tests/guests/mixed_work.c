// A little of everything that a session has to clear away: threads, a child with threads, a program that the child becomes, memory
// of all kinds that they share, a pipe, a socket with an abstract name.
//   mixed_work [ROUNDS]
#include "guest.h"
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sum;
static long rounds;

static void *work(void *argument) {
    for (long i = 0; i < rounds; i++) {
        ok(pthread_mutex_lock(&lock));
        sum = mix(sum + (uint64_t)argument);
        ok(pthread_mutex_unlock(&lock));
        if (i % 64 == 0) sched_yield();
    }
    return NULL;
}

static uint64_t two_threads(void) {
    pthread_t one = start(work, (void *)1), two = start(work, (void *)2);
    finish(one);
    finish(two);
    return sum;
}

static _Atomic uint64_t *named_memory(void) {
    char name[64];
    snprintf(name, sizeof name, "/mixed-work-%d", getpid());
    int fd = must(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600));
    must(ftruncate(fd, 4096));
    void *p = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    must(shm_unlink(name));
    must(close(fd));
    return p;
}

static _Atomic uint64_t *segment(void) {
    int id = must(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600));
    void *p = must(shmat(id, NULL, 0));
    must(shmctl(id, IPC_RMID, NULL));
    return p;
}

static int listening_socket(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = must(socket(AF_UNIX, SOCK_STREAM, 0));
    // The kernel finds a name.
    must(bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)));
    must(listen(fd, 1));
    return fd;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[2], "again") == 0) {
        say("the program that the child became\n");
        return 5;
    }
    rounds = number(argc, argv, 1, 300);
    _Atomic uint64_t *named = named_memory(), *old = segment();
    int socket_fd = listening_socket(), ends[2];
    must(pipe(ends));
    pid_t child = must(fork());
    if (child == 0) {
        *named += two_threads();
        *old += *named;
        must(write(ends[1], "x", 1));
        execl("/proc/self/exe", argv[0], "0", "again", NULL);
        return GUEST_FAILED;
    }
    uint64_t mine = two_threads();
    char byte;
    expect(must(read(ends[0], &byte, 1)) == 1);
    int status;
    must(waitpid(child, &status, 0));
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    expect(*named == *old);
    say("mine %#lx, the child's %#lx\n", (unsigned long)mine, (unsigned long)*named);
    must(close(socket_fd));
    return 0;
}
