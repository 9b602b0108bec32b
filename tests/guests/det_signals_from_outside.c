// Signals to the process that another process sends: the first thread blocks them, and another one takes them, which waits for them in sigwait, has them open
// while it waits for something else, or reads them from a descriptor. A child that ends is one, too.
#include "guest.h"
#include <poll.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum { ROUNDS = 5 };
static pid_t child;
static int to_child;
static volatile long handled, handled_by;

// Has the child send a signal.
static void wish(int number) {
    must(write(to_child, &number, sizeof number));
}

static void *server(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    int terms = 0, hups = 0;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        int number;
        wish(i % 2 ? SIGHUP : SIGTERM);
        ok(sigwait(&set, &number));
        *(number == SIGTERM ? &terms : &hups) += 1;
    }
    expect(terms == ROUNDS && hups == ROUNDS);
    return unused;
}

static void handler(int number, siginfo_t *info, void *context) {
    (void)context;
    expect(number == SIGUSR1 && info->si_pid == child);
    handled++;
    handled_by = gettid_raw();
}

static void *open_one(void *unused) {
    sigset_t open;
    ok(pthread_sigmask(SIG_BLOCK, NULL, &open));
    sigdelset(&open, SIGUSR1);
    for (int i = 0; i < ROUNDS; i++) {
        wish(SIGUSR1);
        switch (i % 3) {
        case 0: fails(EINTR, sigsuspend(&open)); break;
        case 1: fails(EINTR, ppoll(NULL, 0, NULL, &open)); break;
        case 2: fails(EINTR, pselect(0, NULL, NULL, NULL, NULL, &open)); break;
        }
        expect(handled == i + 1 && handled_by == gettid_raw());
    }
    return unused;
}

static void *reader(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    int fd = must(signalfd(-1, &set, 0));
    struct signalfd_siginfo info;
    for (int i = 0; i < ROUNDS; i++) {
        wish(SIGUSR2);
        if (i % 2) {
            struct pollfd p = {.fd = fd, .events = POLLIN};
            expect(must(poll(&p, 1, -1)) == 1);
        }
        expect(must(read(fd, &info, sizeof info)) == sizeof info);
        expect(info.ssi_signo == SIGUSR2 && info.ssi_pid == (uint32_t)child);
    }
    must(close(fd));
    return unused;
}

static void *waits_for_child(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    siginfo_t info;
    wish(0);
    expect(must(sigwaitinfo(&set, &info)) == SIGCHLD);
    expect(info.si_pid == child && info.si_code == CLD_EXITED && info.si_status == 7);
    return unused;
}

int main(void) {
    int there[2];
    must(pipe(there));
    pid_t parent = getpid();
    child = must(fork());
    if (child == 0) {
        must(close(there[1]));
        for (int number; read(there[0], &number, sizeof number) == sizeof number && number;) must(kill(parent, number));
        _exit(7);
    }
    to_child = there[1];
    must(close(there[0]));
    must(sigaction(SIGUSR1, &(struct sigaction){.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, NULL));
    sigset_t set;
    sigemptyset(&set);
    int all[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sigaddset(&set, all[i]);
    ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
    void *(*bodies[])(void *) = {server, open_one, reader, waits_for_child};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        finish(start(bodies[i], NULL));
        say("%zu is done\n", i);
    }
    int status;
    expect(must(waitpid(child, &status, 0)) == child && WEXITSTATUS(status) == 7);
    say("%ld handled\n", handled);
}
