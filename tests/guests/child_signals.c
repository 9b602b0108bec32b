// SIGCHLD with all that it tells: ended, killed, dumped, stopped, continued; SA_NOCLDSTOP and SA_NOCLDWAIT; one signal for many children.
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

static sigset_t chld;
static void handler(int number) { (void)number; }

static void comes(pid_t pid, int code, int status) {
    siginfo_t info;
    expect(must(sigwaitinfo(&chld, &info)) == SIGCHLD);
    if (info.si_pid != pid || info.si_code != code || info.si_status != status)
        say("pid %d (%d), code %d (%d), status %d (%d)\n", info.si_pid, pid, info.si_code, code, info.si_status, status);
    expect(info.si_pid == pid && info.si_code == code && info.si_status == status && info.si_uid == getuid());
    expect(info.si_utime >= 0 && info.si_stime >= 0);
    say("code %d, status %d\n", code, status);
}

static void none(void) {
    sigset_t pending;
    must(sigpending(&pending));
    expect(!sigismember(&pending, SIGCHLD));
}

int main(void) {
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    ok(pthread_sigmask(SIG_BLOCK, &chld, NULL));
    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGCHLD, &action, NULL));
    must(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));

    pid_t pid = must(fork());
    if (pid == 0) _exit(0x105);
    comes(pid, CLD_EXITED, 5);
    must(waitpid(pid, NULL, 0));
    pid = must(fork());
    if (pid == 0) raise(SIGTERM);
    comes(pid, CLD_KILLED, SIGTERM);
    must(waitpid(pid, NULL, 0));
    // A signal that would write a core file, where the limit says that there is none.
    pid = must(fork());
    if (pid == 0) abort();
    int status;
    siginfo_t info;
    must(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
    comes(pid, info.si_code, SIGABRT);
    must(waitpid(pid, &status, 0));
    expect((info.si_code == CLD_DUMPED) == !!WCOREDUMP(status));

    // Stopped and continued.
    pid = must(fork());
    if (pid == 0) for (;;) pause();
    must(kill(pid, SIGSTOP));
    comes(pid, CLD_STOPPED, SIGSTOP);
    must(kill(pid, SIGCONT));
    comes(pid, CLD_CONTINUED, SIGCONT);
    must(kill(pid, SIGKILL));
    comes(pid, CLD_KILLED, SIGKILL);
    must(waitpid(pid, NULL, 0));
    none();

    // Without stops.
    action.sa_flags = SA_NOCLDSTOP;
    must(sigaction(SIGCHLD, &action, NULL));
    pid = must(fork());
    if (pid == 0) for (;;) pause();
    must(kill(pid, SIGSTOP));
    must(waitid(P_PID, pid, &info, WSTOPPED));
    none();
    must(kill(pid, SIGCONT));
    must(waitid(P_PID, pid, &info, WCONTINUED));
    none();
    must(kill(pid, SIGKILL));
    comes(pid, CLD_KILLED, SIGKILL);
    must(waitpid(pid, NULL, 0));

    // Many ends, one signal: it waits only once, and a program has to ask for the rest.
    action.sa_flags = 0;
    must(sigaction(SIGCHLD, &action, NULL));
    for (int i = 0; i < 50; i++)
        if (must(fork()) == 0) _exit(i);
    int sum = 0, left = 50;
    while (left > 0) {
        must(sigwaitinfo(&chld, &info));
        while (waitpid(-1, &status, WNOHANG) > 0) {
            expect(WIFEXITED(status));
            sum += WEXITSTATUS(status);
            left--;
        }
    }
    expect(sum == 49 * 50 / 2);
    struct timespec no_time = {0, 0};
    sigtimedwait(&chld, NULL, &no_time);

    // No zombies: the signal comes, the status is nobody's. Waiting waits for the last one and then says ECHILD.
    action.sa_flags = SA_NOCLDWAIT;
    must(sigaction(SIGCHLD, &action, NULL));
    pid = must(fork());
    if (pid == 0) _exit(6);
    comes(pid, CLD_EXITED, 6);
    fails(ECHILD, waitpid(pid, NULL, 0));
    int ends[2];
    must(pipe(ends));
    for (int i = 0; i < 5; i++) {
        if (must(fork()) != 0) continue;
        char c;
        expect(read(ends[0], &c, 1) == 1);
        _exit(0);
    }
    expect(write(ends[1], "12345", 5) == 5);
    fails(ECHILD, wait(NULL));
    say("nobody is left\n");
}
