// Threads are one process: children of one are waited for by another, also when it has ended; its locks on files, its limits, ids, directory and timers are all threads'.
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

static pid_t child, parent, self;
static char file[] = "guest-XXXXXX";
static int fd;
static volatile int ticks;

static pid_t child_that_ends(int status) {
    pid_t pid = must(fork());
    if (pid == 0) _exit(status);
    return pid;
}

static void *makes_child(void *p) {
    return (void *)(intptr_t)child_that_ends((intptr_t)p);
}

static void *waits(void *unused) {
    int status;
    expect(must(waitpid(child, &status, 0)) == child && WEXITSTATUS(status) == 5);
    siginfo_t info;
    pid_t other = child_that_ends(6);
    must(waitid(P_ALL, 0, &info, WEXITED));
    expect(info.si_pid == other && info.si_status == 6);
    fails(ECHILD, wait(NULL));
    return unused;
}

static void ticked(int number) {
    (void)number;
    ticks++;
}

static void *changes(void *unused) {
    expect(getpid() == self && getppid() == parent && getpgrp() == getpgid(0) && getsid(0) == getsid(self));
    umask(0123);
    must(setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 100}));
    // The lock that the first thread has is this one's, too, and goes when any of them closes the file.
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    must(fcntl(fd, F_SETLK, &lock));
    must(close(must(open(file, O_RDONLY))));
    must(chdir("/proc"));
    must(setuid(getuid()));
    must(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 1000}, NULL));
    return unused;
}

// Can another process lock the file?
static bool is_free(void) {
    pid_t pid = must(fork());
    if (pid == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        _exit(fcntl(fd, F_SETLK, &lock) == 0);
    }
    int status;
    pid_t ended;
    // The timer's signal may come meanwhile.
    do ended = waitpid(pid, &status, 0);
    while (ended < 0 && errno == EINTR);
    expect(ended == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(void) {
    self = getpid();
    parent = getppid();
    must(sigaction(SIGALRM, &(struct sigaction){.sa_handler = ticked}, NULL));
    child = child_that_ends(5);
    finish(start(waits, NULL));
    int status;
    pid_t of_thread = (intptr_t)finish(start(makes_child, (void *)9));
    expect(must(waitpid(of_thread, &status, 0)) == of_thread && WEXITSTATUS(status) == 9);
    int directory = must(open(".", O_RDONLY | O_DIRECTORY));
    fd = must(mkstemp(file));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    must(fcntl(fd, F_SETLK, &lock));
    expect(!is_free());
    finish(start(changes, NULL));
    expect(is_free());
    char here[16];
    expect(getcwd(here, sizeof here) && !strcmp(here, "/proc"));
    expect(umask(0) == 0123);
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit));
    expect(limit.rlim_cur == 64 && limit.rlim_max == 100);
    while (dup(fd) < 63);
    fails(EMFILE, dup(fd));
    while (!ticks) usleep(1000);
    must(unlinkat(directory, file, 0));
    say("as one\n");
}
