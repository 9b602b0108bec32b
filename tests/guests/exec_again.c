// execve(2): arguments, environment, descriptors, signals, ids; errors; from a thread; through a script.
// variant: static -static
#include "guest.h"
#include <sys/wait.h>

static char *self;

static void *from_thread(void *unused) {
    (void)unused;
    execl(self, "again", "thread", NULL);
    guest_fail(__FILE__, __LINE__, "exec from a thread");
}

static void *sleeps(void *unused) {
    for (;;) pause();
    return unused;
}

int main(int argc, char **argv) {
    static char path[PATH_MAX];
    path[must(readlink("/proc/self/exe", path, sizeof path - 1))] = 0;
    self = path;
    const char *stage = argc > 1 ? argv[1] : "first";
    say("%s: %d, %d arguments\n", stage, getpid(), argc);
    if (!strcmp(stage, "first")) {
        fails(ENOENT, execl("/nowhere", "x", NULL));
        fails(EACCES, execl("/etc/passwd", "x", NULL));
        fails(EFAULT, syscall(SYS_execve, (char *)8, NULL, NULL));
        fails(ENOTDIR, execl("/etc/passwd/x", "x", NULL));
        int kept = must(open("/dev/null", O_RDONLY)), closed = must(open("/dev/null", O_RDONLY | O_CLOEXEC));
        expect(kept == 3 && closed == 4);
        signal(SIGUSR1, SIG_IGN);
        signal(SIGUSR2, SIG_DFL);
        struct sigaction action = {.sa_handler = _exit};
        must(sigaction(SIGHUP, &action, NULL));
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        must(sigprocmask(SIG_SETMASK, &set, NULL));
        // It waits for the program that comes.
        must(kill(getpid(), SIGTERM));
        char id[20], *args[] = {"again", "second", id, NULL}, *env[] = {"ONE=1", "TWO=zwei", NULL};
        snprintf(id, sizeof id, "%d", getpid());
        execve(self, args, env);
        expect(!"exec");
    }
    if (!strcmp(stage, "second")) {
        expect(atoi(argv[2]) == getpid() && !strcmp(getenv("TWO"), "zwei") && !getenv("PATH"));
        struct stat st;
        must(fstat(3, &st));
        fails(EBADF, fstat(4, &st));
        struct sigaction action;
        must(sigaction(SIGUSR1, NULL, &action));
        expect(action.sa_handler == SIG_IGN);
        must(sigaction(SIGHUP, NULL, &action));
        expect(action.sa_handler == SIG_DFL);
        sigset_t set;
        must(sigprocmask(SIG_BLOCK, NULL, &set));
        expect(sigismember(&set, SIGINT) && sigismember(&set, SIGTERM) && !sigismember(&set, SIGQUIT));
        must(sigpending(&set));
        expect(sigismember(&set, SIGTERM));
        signal(SIGTERM, SIG_IGN);
        sigemptyset(&set);
        must(sigprocmask(SIG_SETMASK, &set, NULL));
        pid_t pid = must(fork());
        if (pid == 0) {
            for (int i = 0; i < 3; i++) start(sleeps, NULL);
            start(from_thread, NULL);
            for (;;) pause();
        }
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 21);
        // A script.
        char name[] = "/tmp/reprise-script-XXXXXX";
        int fd = must(mkstemp(name));
        char text[PATH_MAX + 20];
        int n = snprintf(text, sizeof text, "#!%s script\n", self);
        expect(write(fd, text, n) == n);
        must(fchmod(fd, 0700));
        close(fd);
        pid = must(fork());
        if (pid == 0) {
            execl(name, "ignored", "more", NULL);
            _exit(99);
        }
        expect(must(waitpid(pid, &status, 0)) == pid);
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 22);
        must(unlink(name));
        return 0;
    }
    if (!strcmp(stage, "thread")) {
        expect(gettid_raw() == getpid());
        return 21;
    }
    if (!strcmp(stage, "script")) {
        expect(argc == 4 && !strcmp(argv[3], "more"));
        return 22;
    }
    return 98;
}
