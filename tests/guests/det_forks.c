// Threads that race for plain memory make children: by fork(2), by posix_spawn(3) and by system(3). At last the first thread execs, while others run.
#include "guest.h"
#include <spawn.h>
#include <sys/wait.h>

static volatile uint64_t raced;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char **environment;

static int status_of(pid_t pid) {
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void *changes(void *unused) {
    raced++;
    return unused;
}

static void *body(void *p) {
    uint64_t me = (uintptr_t)p;
    for (int i = 0; i < 3; i++) {
        raced = mix(raced + me);
        pid_t pid = must(fork());
        if (pid == 0) {
            // A memory of its own, and threads of its own.
            uint64_t seen = raced;
            raced = 0;
            finish(start(changes, NULL));
            _exit((seen + raced) % 251);
        }
        int seen = status_of(pid);
        ok(pthread_mutex_lock(&lock));
        say("thread %lu: %d\n", me, seen);
        ok(pthread_mutex_unlock(&lock));
    }
    char *arguments[] = {"sh", "-c", "exit 7", NULL};
    pid_t pid;
    ok(posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environment));
    expect(status_of(pid) == 7);
    int status = system("exit 9");
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    return NULL;
}

static void *waits(void *unused) {
    pause();
    return unused;
}

int main(int argc, char **argv, char **env) {
    (void)argc, (void)argv;
    environment = env;
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) threads[i] = start(body, (void *)(i + 1));
    for (int i = 0; i < 3; i++) finish(threads[i]);
    start(waits, NULL);
    must(execl("/bin/echo", "echo", "become", NULL));
}
