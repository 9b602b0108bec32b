// A lease on a file: who opens it waits until the holder has heard of it by a signal and gives up; or is told EAGAIN.
#include "guest.h"

static volatile sig_atomic_t broken, which;
static int leased;
static _Atomic int opened;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    which = info->si_fd;
    broken++;
}

static void *opener(void *unused) {
    (void)unused;
    // The holder is the open file, not the process: this waits.
    int fd = must(open("file", O_WRONLY));
    opened = 1;
    must(close(fd));
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    must(sigaction(SIGRTMIN + 2, &action, NULL));
    must(close(must(creat("file", 0600))));
    leased = must(open("file", O_RDONLY));
    expect(fcntl(leased, F_GETLEASE) == F_UNLCK);
    if (fcntl(leased, F_SETLEASE, F_WRLCK) != 0) {
        expect(errno == EINVAL || errno == EAGAIN || errno == EACCES);
        say("no leases here\n");
        return 0;
    }
    must(fcntl(leased, F_SETSIG, SIGRTMIN + 2));
    expect(fcntl(leased, F_GETLEASE) == F_WRLCK);
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN + 2);
    ok(pthread_sigmask(SIG_BLOCK, &blocked, &before));
    fails(EWOULDBLOCK, open("file", O_WRONLY | O_NONBLOCK));
    // It is being broken already, down to nothing.
    expect(fcntl(leased, F_GETLEASE) == F_UNLCK);
    pthread_t thread = start(opener, NULL);
    while (!broken) sigsuspend(&before);
    expect(broken == 1 && which == leased && !opened);
    must(fcntl(leased, F_SETLEASE, F_UNLCK));
    finish(thread);
    expect(opened);
    // Without a lease there is no signal for it any more.
    must(fcntl(leased, F_SETSIG, SIGRTMIN + 2));
    // For readers: another reader is nothing, a writer breaks it.
    must(fcntl(leased, F_SETLEASE, F_RDLCK));
    must(close(must(open("file", O_RDONLY))));
    expect(fcntl(leased, F_GETLEASE) == F_RDLCK && broken == 1);
    fails(EWOULDBLOCK, open("file", O_RDWR | O_NONBLOCK));
    while (broken < 2) sigsuspend(&before);
    must(fcntl(leased, F_SETLEASE, F_UNLCK));
    must(close(must(open("file", O_RDWR | O_NONBLOCK))));
    fails(EAGAIN, fcntl(must(open("file", O_RDWR)), F_SETLEASE, F_RDLCK));
    fails(EINVAL, fcntl(leased, F_SETLEASE, 99));
    say("descriptor %d\n", (int)which);
}
