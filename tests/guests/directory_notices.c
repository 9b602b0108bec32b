// F_NOTIFY: signals about what happens in a directory, once or again and again.
#include "guest.h"

static volatile sig_atomic_t count, which;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    which = info->si_fd;
    count++;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    must(sigaction(SIGRTMIN + 3, &action, NULL));
    must(mkdir("dir", 0700));
    int dir = must(open("dir", O_RDONLY | O_DIRECTORY));
    must(fcntl(dir, F_SETSIG, SIGRTMIN + 3));
    if (fcntl(dir, F_NOTIFY, DN_CREATE) != 0) {
        expect(errno == EINVAL);
        say("no notices here\n");
        return 0;
    }
    sigset_t blocked, before, waiting;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN + 3);
    ok(pthread_sigmask(SIG_BLOCK, &blocked, &before));
    int file = must(open("dir/file", O_CREAT | O_RDWR, 0600));
    while (count < 1) sigsuspend(&before);
    expect(which == dir);
    // Once only.
    must(close(must(creat("dir/second", 0600))));
    must(sigpending(&waiting));
    expect(!sigismember(&waiting, SIGRTMIN + 3));
    must(fcntl(dir, F_NOTIFY, DN_MODIFY | DN_DELETE | DN_MULTISHOT));
    expect(write(file, "x", 1) == 1);
    while (count < 2) sigsuspend(&before);
    must(rename("dir/second", "dir/third"));
    while (count < 3) sigsuspend(&before);
    must(unlink("dir/third"));
    while (count < 4) sigsuspend(&before);
    char c;
    expect(pread(file, &c, 1, 0) == 1);
    must(fcntl(dir, F_NOTIFY, 0));
    must(unlink("dir/file"));
    must(sigpending(&waiting));
    expect(!sigismember(&waiting, SIGRTMIN + 3));
    fails(ENOTDIR, fcntl(file, F_NOTIFY, DN_CREATE));
    say("%d notices of descriptor %d\n", (int)count, (int)which);
}
