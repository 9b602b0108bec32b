// Several threads exec at the same time: exactly one of them wins, the others are gone; also against an exit and a fork.
// run: 8
#include "guest.h"
#include <sys/wait.h>

static char *program;
static pthread_barrier_t all;
static _Atomic int failed;

static void *execs(void *p) {
    char me[12];
    snprintf(me, sizeof me, "%ld", (long)(intptr_t)p);
    pthread_barrier_wait(&all);
    execl("/proc/self/exe", program, "won", me, NULL);
    return NULL;
}

// Fails again and again, while another thread succeeds.
static void *fails_to(void *unused) {
    pthread_barrier_wait(&all);
    for (;;) {
        if (execl("/nowhere/at/all", "x", NULL) == -1 && errno == ENOENT) failed++;
    }
    return unused;
}

static void *forks(void *unused) {
    pthread_barrier_wait(&all);
    for (;;) {
        pid_t pid = fork();
        if (pid == 0) _exit(0);
        if (pid > 0) waitpid(pid, NULL, 0);
    }
    return unused;
}

static void *ends(void *unused) {
    pthread_barrier_wait(&all);
    _exit(77);
    return unused;
}

int main(int argc, char **argv) {
    if (argc == 3) return 10 + atoi(argv[2]);
    program = argv[0];
    long rounds = number(argc, argv, 1, 8);
    for (long round = 0; round < rounds; round++) {
        pid_t pid = must(fork());
        if (pid == 0) {
            ok(pthread_barrier_init(&all, NULL, 5));
            for (intptr_t i = 0; i < 3; i++) start(execs, (void *)i);
            start(round % 4 == 1 ? fails_to : round % 4 == 2 ? forks : round % 4 == 3 ? ends : execs, (void *)3);
            pthread_barrier_wait(&all);
            for (;;) pause();
        }
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status));
        int won = WEXITSTATUS(status);
        expect((won >= 10 && won <= 13) || (round % 4 == 3 && won == 77));
        say("round %ld: %d\n", round, won);
    }
}
