// A service as daemons were made for decades: two forks, a session of its own, a locked file with its id; it reloads at SIGHUP and ends at
// SIGTERM, while a second one finds the lock held.
#include "guest.h"
#include <poll.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

static char pidfile[] = "/tmp/reprise-daemon-XXXXXX";
static volatile sig_atomic_t reload, terminate;

static void handler(int number) {
    if (number == SIGHUP) reload = 1;
    else terminate = 1;
}

__attribute__((noreturn)) static void serve(int told) {
    int file = must(open(pidfile, O_RDWR | O_CLOEXEC));
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        expect(errno == EWOULDBLOCK);
        expect(write(told, "held\n", 5) == 5);
        _exit(1);
    }
    sigset_t blocked, open;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGHUP);
    sigaddset(&blocked, SIGTERM);
    ok(pthread_sigmask(SIG_BLOCK, &blocked, &open));
    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGHUP, &action, NULL));
    must(sigaction(SIGTERM, &action, NULL));
    expect(dprintf(file, "%d\n", getpid()) > 0);
    expect(write(told, "ready\n", 6) == 6);
    while (!terminate) {
        if (reload) {
            reload = 0;
            expect(write(told, "reloaded\n", 9) == 9);
        }
        fails(EINTR, sigsuspend(&open));
    }
    expect(write(told, "ended\n", 6) == 6);
    _exit(0);
}

// Starts the service; what it says comes out of the pipe.
static FILE *launch(void) {
    int told[2];
    must(pipe(told));
    pid_t pid = must(fork());
    if (pid == 0) {
        close(told[0]);
        must(setsid());
        signal(SIGHUP, SIG_IGN);
        if (must(fork()) != 0) _exit(0);
        must(chdir("/"));
        umask(0);
        int null = must(open("/dev/null", O_RDWR));
        for (int i = 0; i < 3; i++) must(dup2(null, i));
        // Not a leader: no terminal can become ours by accident.
        expect(getsid(0) != getpid());
        serve(told[1]);
    }
    close(told[1]);
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return fdopen(told[0], "r");
}

static void hears(FILE *from, const char *wanted) {
    char line[20];
    expect(fgets(line, sizeof line, from) && !strcmp(line, wanted));
    say("the service says: %s", line);
}

int main(void) {
    close(must(mkstemp(pidfile)));
    FILE *service = launch();
    hears(service, "ready\n");
    FILE *file = fopen(pidfile, "r");
    int pid;
    expect(file && fscanf(file, "%d", &pid) == 1);
    fclose(file);
    FILE *second = launch();
    hears(second, "held\n");
    expect(fgetc(second) == EOF);
    for (int i = 0; i < 3; i++) {
        must(kill(pid, SIGHUP));
        hears(service, "reloaded\n");
    }
    int fd = must(pidfd_open(pid, 0));
    must(kill(pid, SIGTERM));
    hears(service, "ended\n");
    expect(fgetc(service) == EOF);
    // It is nobody's child that we could wait for; its descriptor tells its end.
    fails(ECHILD, waitpid(pid, NULL, 0));
    struct pollfd poll_fd = {fd, POLLIN, 0};
    expect(must(poll(&poll_fd, 1, -1)) == 1 && poll_fd.revents & POLLIN);
    must(unlink(pidfile));
    say("it was process %d\n", pid);
}
