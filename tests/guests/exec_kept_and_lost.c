// What an exec keeps (id, directory, umask, alarm, limits, queued signals with their values) and what it takes away (threads, memory
// locks, other stacks, timers, names, handlers, close-on-exec descriptors).
#include "guest.h"
#include <sys/prctl.h>
#include <sys/resource.h>

static void handler(int number) { (void)number; }

static void *waits(void *unused) {
    for (;;) pause();
    return unused;
}

static void before(char **argv) {
    must(chdir("/tmp"));
    umask(0137);
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 123;
    must(setrlimit(RLIMIT_NOFILE, &limit));
    must(nice(3));
    must(prctl(PR_SET_NAME, "before"));
    must(prctl(PR_SET_PDEATHSIG, SIGUSR1));
    must(prctl(PR_SET_CHILD_SUBREAPER, 1));
    must(prctl(PR_SET_KEEPCAPS, 1));
    must(prctl(PR_SET_TIMERSLACK, 12345));
    // Signals that wait, with values, for the process and for this thread.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigaddset(&set, SIGUSR1);
    ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < 3; i++) must(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 70 + i}));
    ok(pthread_kill(pthread_self(), SIGUSR1));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    must(sigaction(SIGUSR2, &action, NULL));
    must(sigaction(SIGRTMIN, &action, NULL));
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    must(sigaltstack(&stack, NULL));
    // An alarm goes on, timers of timer_create don't.
    alarm(1000);
    struct itimerval interval = {.it_value = {.tv_sec = 500}, .it_interval = {.tv_sec = 7}};
    must(setitimer(ITIMER_VIRTUAL, &interval, NULL));
    timer_t timer;
    must(timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM}, &timer));
    must(timer_settime(timer, 0, &(struct itimerspec){.it_value = {.tv_sec = 1000}}, NULL));
    expect(must(open("/dev/null", O_RDONLY | O_CLOEXEC)) == 3);
    expect(must(open("/dev/null", O_RDONLY)) == 4);
    for (int i = 0; i < 3; i++) start(waits, NULL);
    char pid[12];
    snprintf(pid, sizeof pid, "%d", getpid());
    execl("/proc/self/exe", argv[0], pid, NULL);
    expect(!"exec");
}

int main(int argc, char **argv) {
    if (argc < 2) before(argv);
    expect(getpid() == atoi(argv[1]) && gettid_raw() == getpid());
    char text[100];
    expect(getcwd(text, sizeof text) && !strcmp(text, "/tmp"));
    expect(umask(0) == 0137);
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit));
    expect(limit.rlim_cur == 123);
    errno = 0;
    expect(getpriority(PRIO_PROCESS, 0) >= 3 || errno != 0);
    int value = -1;
    must(prctl(PR_GET_PDEATHSIG, &value));
    expect(value == SIGUSR1);
    must(prctl(PR_GET_CHILD_SUBREAPER, &value));
    expect(value == 1);
    say("kept: death signal, subreaper; slack %d, keepcaps %d\n", prctl(PR_GET_TIMERSLACK), prctl(PR_GET_KEEPCAPS));
    must(prctl(PR_GET_NAME, text));
    expect(strcmp(text, "before"));
    fails(EBADF, fcntl(3, F_GETFD));
    expect(must(fcntl(4, F_GETFD)) == 0);
    struct sigaction action;
    must(sigaction(SIGUSR2, NULL, &action));
    expect(action.sa_handler == SIG_DFL);
    stack_t stack;
    must(sigaltstack(NULL, &stack));
    expect(stack.ss_flags == SS_DISABLE);
    struct itimerval interval;
    must(getitimer(ITIMER_REAL, &interval));
    expect(interval.it_value.tv_sec > 900 && interval.it_value.tv_sec <= 1000);
    must(getitimer(ITIMER_VIRTUAL, &interval));
    expect(interval.it_interval.tv_sec == 7);
    struct itimerspec spec;
    fails(EINVAL, syscall(SYS_timer_gettime, 0, &spec));
    say("clocks: done\n");
    // The signals are still there, in order.
    sigset_t set, pending;
    must(sigpending(&pending));
    expect(sigismember(&pending, SIGRTMIN) && sigismember(&pending, SIGUSR1));
    ok(pthread_sigmask(SIG_BLOCK, NULL, &set));
    expect(sigismember(&set, SIGRTMIN) && sigismember(&set, SIGUSR1) && !sigismember(&set, SIGUSR2));
    struct timespec none = {0, 0};
    siginfo_t info;
    int got;
    while ((got = sigtimedwait(&set, &info, &none)) > 0) {
        expect(info.si_pid == getpid() && info.si_uid == getuid());
        say("signal %d, code %d, value %d\n", got, info.si_code, info.si_code == SI_QUEUE ? info.si_value.sival_int : 0);
    }
}
