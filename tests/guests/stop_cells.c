// The table of docs/internals/stops-and-signals.md: a signal that stops, continues or ends a process, or that it catches, by what the process
// makes of it, how many threads it has, whom the signal is meant for and where that one is. What its parent is told, in which order, and what
// the process saw, is the same in every run.
// run: SIGTSTP default
// run: SIGCONT blocked
// run: SIGSEGV handled
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

static const struct {
    const char *name;
    int number;
} SIGNALS[] = {
    {"SIGSTOP", SIGSTOP}, {"SIGTSTP", SIGTSTP}, {"SIGTTIN", SIGTTIN}, {"SIGTTOU", SIGTTOU}, {"SIGCONT", SIGCONT}, {"SIGTERM", SIGTERM},
    {"SIGKILL", SIGKILL}, {"SIGSEGV", SIGSEGV}, {"SIGBUS", SIGBUS},   {"SIGFPE", SIGFPE},   {"SIGILL", SIGILL},   {"SIGTRAP", SIGTRAP},
    {"SIGCHLD", SIGCHLD}, {"SIGRTMIN", 34},
};
static const char *const DISPOSITIONS[] = {"default", "ignored", "handled", "blocked"};
enum { DEFAULT, IGNORED, HANDLED, BLOCKED };
// Whom it is for: the only thread, the main thread of two, the other one.
static const char *const TARGETS[] = {"only", "main", "other"};
enum { ONLY, MAIN, OTHER };
// Where that one is: in a call, in code that computes, in a loop of short calls, it sends the signal itself, or the other thread does.
static const char *const PLACES[] = {"call", "code", "calls", "itself", "sibling"};
enum { CALL, CODE, CALLS, ITSELF, SIBLING };

// Long enough for the signal to come in the middle of it, mostly.
#define COMPUTES 2000000
#define SHORT_CALLS 2000

static int the_signal, disposition, target, place;
static int ready[2], go[2], hold[2], told[2];
static volatile sig_atomic_t caught_by_main, caught_by_other;

static void caught(int signal) {
    expect(signal == the_signal);
    if (gettid_raw() == getpid())
        caught_by_main++;
    else
        caught_by_other++;
}

static void send_it(pid_t tid) {
    if (target == ONLY)
        must(kill(getpid(), the_signal));
    else
        must(syscall(SYS_tgkill, getpid(), tid, the_signal));
}

static void wait_for_leave(void) {
    char c;
    ssize_t n;
    do n = read(go[0], &c, 1);
    while (n < 0 && errno == EINTR);
    expect(n == 1);
}

static void be_there(void) {
    pid_t own = gettid_raw();
    must(write(place == SIBLING ? told[1] : ready[1], &own, sizeof own));
    if (place == CODE) burn(COMPUTES);
    for (int i = 0; place == CALLS && i < SHORT_CALLS; i++) (void)getppid();
    if (place == ITSELF) send_it(own);
    wait_for_leave();
    if (disposition == BLOCKED) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, the_signal);
        ok(pthread_sigmask(SIG_UNBLOCK, &one, NULL));
        // An end would hide that it went on.
        wait_for_leave();
    }
}

static void stand_by(void) {
    if (place == SIBLING) {
        pid_t tid;
        expect(read(told[0], &tid, sizeof tid) == sizeof tid);
        // What stops or ends this process keeps it from telling its parent; and what its parent is told may end the other thread before the signal
        // is sent.
        bool first = disposition == DEFAULT && the_signal != SIGCONT && the_signal != SIGCHLD;
        if (first) must(write(ready[1], &tid, sizeof tid));
        send_it(tid);
        if (!first) must(write(ready[1], &tid, sizeof tid));
    }
}

static void *second(void *unused) {
    (void)unused;
    if (target == OTHER) {
        be_there();
        return NULL;
    }
    stand_by();
    char c;
    while (read(hold[0], &c, 1) < 0) expect(errno == EINTR);
    return NULL;
}

__attribute__((noreturn)) static void child(void) {
    struct rlimit none = {0, 0};
    must(setrlimit(RLIMIT_CORE, &none));
    must(setpgid(0, 0));
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, the_signal);
    if (disposition == BLOCKED) must(sigprocmask(SIG_BLOCK, &one, NULL));
    if (disposition == IGNORED) expect(signal(the_signal, SIG_IGN) != SIG_ERR);
    if (disposition == HANDLED) {
        struct sigaction action = {.sa_handler = caught, .sa_flags = SA_RESTART};
        must(sigaction(the_signal, &action, NULL));
    }
    if (target == ONLY) {
        be_there();
        _exit(10 + caught_by_main);
    }
    pthread_t other = start(second, NULL);
    if (target == MAIN) {
        be_there();
    } else {
        stand_by();
        finish(other);
    }
    _exit(10 + caught_by_main + 20 * caught_by_other);
}

// What the parent is told next.
static bool told_of(pid_t pid) {
    siginfo_t info = {0};
    must(waitid(P_PID, pid, &info, WEXITED | WSTOPPED | WCONTINUED));
    expect(info.si_pid == pid);
    const char *how = info.si_code == CLD_EXITED      ? "exited"
                      : info.si_code == CLD_KILLED    ? "killed"
                      : info.si_code == CLD_DUMPED    ? "dumped"
                      : info.si_code == CLD_STOPPED   ? "stopped"
                      : info.si_code == CLD_CONTINUED ? "continued"
                                                      : "?";
    say("%s %d\n", how, info.si_status);
    return info.si_code != CLD_STOPPED && info.si_code != CLD_CONTINUED;
}

static bool stops(void) {
    return the_signal == SIGSTOP || the_signal == SIGTSTP || the_signal == SIGTTIN || the_signal == SIGTTOU;
}

static void cell(void) {
    must(pipe(ready));
    must(pipe(go));
    must(pipe(hold));
    must(pipe(told));
    pid_t pid = must(fork());
    if (pid == 0) child();
    pid_t tid;
    expect(read(ready[0], &tid, sizeof tid) == sizeof tid);
    bool sends = place != ITSELF && place != SIBLING;
    bool over = false, acts = disposition == DEFAULT;
    if (the_signal == SIGCONT && sends) {
        must(kill(pid, SIGSTOP));
        over = told_of(pid);
    }
    if (sends && target == ONLY) must(kill(pid, the_signal));
    if (sends && target != ONLY) must(syscall(SYS_tgkill, pid, tid, the_signal));
    if (the_signal == SIGCONT && sends) over = told_of(pid);
    bool harmless = the_signal == SIGCONT || the_signal == SIGCHLD;
    if (acts && !harmless) over = told_of(pid);
    if (acts && stops()) {
        must(kill(pid, SIGCONT));
        over = told_of(pid);
    }
    if (!over) {
        must(write(go[1], "g", 1));
        if (disposition == BLOCKED && stops()) {
            over = told_of(pid);
            must(kill(pid, SIGCONT));
            over = told_of(pid);
        }
        if (disposition == BLOCKED) must(write(go[1], "g", 1));
        over = told_of(pid);
    }
    expect(over);
    for (int i = 0; i < 2; i++) {
        must(close(ready[i]));
        must(close(go[i]));
        must(close(hold[i]));
        must(close(told[i]));
    }
}

int main(int argc, char **argv) {
    expect(argc >= 3);
    size_t s = 0;
    while (s < sizeof SIGNALS / sizeof *SIGNALS && strcmp(SIGNALS[s].name, argv[1]) != 0) s++;
    expect(s < sizeof SIGNALS / sizeof *SIGNALS);
    the_signal = SIGNALS[s].number;
    while (disposition < 4 && strcmp(DISPOSITIONS[disposition], argv[2]) != 0) disposition++;
    expect(disposition < 4);
    // One cell, or all.
    for (target = ONLY; target <= OTHER; target++) {
        for (place = CALL; place <= SIBLING; place++) {
            if (target == ONLY && place == SIBLING) continue;
            if (argc > 4 && (strcmp(argv[3], TARGETS[target]) != 0 || strcmp(argv[4], PLACES[place]) != 0)) continue;
            say("%s %s, %s thread, %s:\n", argv[1], argv[2], TARGETS[target], PLACES[place]);
            cell();
        }
    }
}
