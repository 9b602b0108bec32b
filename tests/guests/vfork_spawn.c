// vfork(2) and posix_spawn(3): a child in its parent's memory, until it execs or ends.
#include "guest.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
static volatile int touched;

int main(int argc, char **argv) {
    if (argc > 1) {
        say("spawned with %s, %s\n", argv[1], getenv("COLOUR") ?: "no colour");
        return 11;
    }
    int status;
    pid_t pid = vfork();
    if (pid == 0) {
        touched = 77;
        _exit(6);
    }
    expect(pid > 0 && touched == 77);
    expect(must(waitpid(pid, &status, 0)) == pid && WEXITSTATUS(status) == 6);
    pid = vfork();
    if (pid == 0) {
        // A handler that the child sets is its own.
        signal(SIGUSR1, SIG_IGN);
        char *args[] = {argv[0], "vfork", NULL};
        execv("/proc/self/exe", args);
        _exit(99);
    }
    struct sigaction action;
    must(sigaction(SIGUSR1, NULL, &action));
    expect(action.sa_handler == SIG_DFL);
    expect(must(waitpid(pid, &status, 0)) == pid && WEXITSTATUS(status) == 11);
    say("vfork: done\n");

    char *args[] = {argv[0], "spawn", NULL}, *env[] = {"COLOUR=green", NULL};
    posix_spawn_file_actions_t actions;
    int out[2];
    must(pipe(out));
    ok(posix_spawn_file_actions_init(&actions));
    ok(posix_spawn_file_actions_adddup2(&actions, out[1], 1));
    posix_spawnattr_t attributes;
    ok(posix_spawnattr_init(&attributes));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    ok(posix_spawnattr_setsigdefault(&attributes, &set));
    ok(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF));
    for (int i = 0; i < 3; i++) {
        ok(posix_spawn(&pid, "/proc/self/exe", i ? &actions : NULL, &attributes, args, env));
        expect(must(waitpid(pid, &status, 0)) == pid && WEXITSTATUS(status) == 11);
    }
    close(out[1]);
    char text[200];
    ssize_t n = must(read(out[0], text, sizeof text));
    say("through the pipe: %.*s", (int)n, text);
    // What can't be executed is told to the parent.
    expect(posix_spawn(&pid, "/nowhere/at/all", NULL, NULL, args, env) == ENOENT);
    expect(posix_spawn(&pid, "/etc", NULL, NULL, args, env) == EACCES);
    say("done\n");
}
