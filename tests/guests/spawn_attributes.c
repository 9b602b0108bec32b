// posix_spawn: file actions in their order, attributes (group, session, mask, default signals, scheduling), and errors of each.
#include "guest.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
static posix_spawn_file_actions_t actions;
static posix_spawnattr_t attributes;

static int spawned(const char *path, char **args) {
    pid_t pid;
    ok(posix_spawn(&pid, path, &actions, &attributes, args, environ));
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int again(const char *what) {
    char *args[] = {"spawned", (char *)what, NULL};
    return spawned("/proc/self/exe", args);
}

// What the child finds.
static int child(const char *what, int own) {
    if (!strcmp(what, "files")) {
        // 5 was opened, 6 and 7 are copies of it, 8 was closed, 9 lost its mark, the directory is another one.
        struct stat a, b;
        must(fstat(5, &a));
        must(fstat(7, &b));
        expect(a.st_ino == b.st_ino && a.st_rdev == b.st_rdev);
        fails(EBADF, fcntl(8, F_GETFD));
        expect(must(fcntl(9, F_GETFD)) == 0);
        fails(EBADF, fcntl(20, F_GETFD));
        char where[100];
        expect(getcwd(where, sizeof where) && !strcmp(where, "/dev"));
        return 50;
    }
    if (!strcmp(what, "group")) return getpgrp() == getpid() && getsid(0) != getpid() ? 51 : 0;
    if (!strcmp(what, "session")) return getsid(0) == getpid() ? 52 : 0;
    if (!strcmp(what, "signals")) {
        sigset_t set;
        ok(pthread_sigmask(SIG_BLOCK, NULL, &set));
        struct sigaction first, second;
        must(sigaction(SIGUSR1, NULL, &first));
        must(sigaction(SIGUSR2, NULL, &second));
        return sigismember(&set, SIGHUP) == 1 && sigismember(&set, SIGTERM) == 0 && first.sa_handler == SIG_DFL && second.sa_handler == SIG_IGN ? 53 : 0;
    }
    if (!strcmp(what, "scheduling")) return sched_getscheduler(0) == SCHED_OTHER ? 54 : 0;
    return own;
}

int main(int argc, char **argv) {
    if (argc > 1) return child(argv[1], 60);
    ok(posix_spawn_file_actions_init(&actions));
    ok(posix_spawnattr_init(&attributes));
    expect(must(fcntl(must(open("/dev/zero", O_RDONLY)), F_DUPFD, 8)) == 8);
    expect(must(fcntl(8, F_DUPFD_CLOEXEC, 9)) == 9 && must(fcntl(8, F_DUPFD, 20)) == 20);
    ok(posix_spawn_file_actions_addopen(&actions, 5, "/dev/null", O_RDWR, 0));
    ok(posix_spawn_file_actions_adddup2(&actions, 5, 6));
    ok(posix_spawn_file_actions_adddup2(&actions, 6, 7));
    ok(posix_spawn_file_actions_addclose(&actions, 8));
    ok(posix_spawn_file_actions_adddup2(&actions, 9, 9));
    ok(posix_spawn_file_actions_addchdir_np(&actions, "/dev"));
    ok(posix_spawn_file_actions_addclosefrom_np(&actions, 15));
    expect(again("files") == 50);
    // Actions that fail are told to the parent, and leave no child.
    pid_t pid = 77;
    char *args[] = {"spawned", "none", NULL};
    ok(posix_spawn_file_actions_addopen(&actions, 5, "/nowhere/at/all", O_RDONLY, 0));
    expect(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, args, environ) == ENOENT);
    ok(posix_spawn_file_actions_destroy(&actions));
    ok(posix_spawn_file_actions_init(&actions));
    ok(posix_spawn_file_actions_adddup2(&actions, 77, 5));
    expect(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, args, environ) == EBADF);
    ok(posix_spawn_file_actions_destroy(&actions));
    ok(posix_spawn_file_actions_init(&actions));
    expect(posix_spawn_file_actions_addclose(&actions, -1) == EBADF);
    fails(ECHILD, wait(NULL));
    say("file actions: done\n");

    ok(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP));
    expect(again("group") == 51);
    ok(posix_spawnattr_setpgroup(&attributes, 0x3fffffff));
    expect(posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, args, environ) == EPERM);
    ok(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID));
    expect(again("session") == 52);
    ok(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    ok(posix_spawnattr_setsigmask(&attributes, &set));
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    ok(posix_spawnattr_setsigdefault(&attributes, &set));
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    expect(again("signals") == 53);
    struct sigaction action;
    must(sigaction(SIGUSR1, NULL, &action));
    expect(action.sa_handler == SIG_IGN);
    ok(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSCHEDULER));
    ok(posix_spawnattr_setschedpolicy(&attributes, SCHED_OTHER));
    expect(posix_spawnattr_setschedpolicy(&attributes, SCHED_BATCH) == EINVAL);
    must(sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}));
    expect(again("scheduling") == 54);
    ok(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_RESETIDS | POSIX_SPAWN_USEVFORK));
    expect(again("ids") == 60);
    expect(posix_spawnattr_setflags(&attributes, 0x4000) == EINVAL);
    say("attributes: done\n");

    // By a search, in which a text without a first line is no program.
    ok(posix_spawnp(&pid, "sh", NULL, NULL, (char *[]){"sh", "-c", "exit 61", NULL}, environ));
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WEXITSTATUS(status) == 61);
    char name[] = "/tmp/reprise-spawn-XXXXXX";
    int fd = must(mkostemp(name, O_CLOEXEC));
    expect(write(fd, "exit 62\n", 8) == 8);
    must(fchmod(fd, 0700));
    expect(posix_spawnp(&pid, name, NULL, NULL, args, environ) == ETXTBSY);
    close(fd);
    expect(posix_spawnp(&pid, name, NULL, NULL, args, environ) == ENOEXEC);
    must(unlink(name));
    expect(posix_spawnp(&pid, "no-program-of-this-name", NULL, NULL, args, environ) == ENOENT);
    fails(ECHILD, wait(NULL));
    say("searches: done\n");
}
