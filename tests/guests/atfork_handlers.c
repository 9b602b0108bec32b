// pthread_atfork: the order of its handlers, a lock that they carry over a fork, and libc's own locks (malloc, stdio) in a child that is
// made while other threads hold them all the time.
// run: 10
#include "guest.h"
#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long protected[2];
static _Atomic int stop;
static char order[64];

static void note(char c) {
    size_t n = strlen(order);
    if (n + 1 < sizeof order) order[n] = c;
}
static void prepare_1(void) {
    note('p');
    ok(pthread_mutex_lock(&lock));
}
static void parent_1(void) {
    note('a');
    ok(pthread_mutex_unlock(&lock));
}
static void child_1(void) {
    note('c');
    ok(pthread_mutex_unlock(&lock));
}
static void prepare_2(void) { note('P'); }
static void parent_2(void) { note('A'); }
static void child_2(void) { note('C'); }

static void *changes(void *unused) {
    while (!stop) {
        ok(pthread_mutex_lock(&lock));
        protected[0]++;
        if (protected[0] % 8 == 0) sched_yield();
        protected[1]++;
        ok(pthread_mutex_unlock(&lock));
        if (protected[0] % 5 == 0) sched_yield();
    }
    return unused;
}

static void *allocates(void *unused) {
    for (size_t i = 0; !stop; i++) {
        char *memory = malloc(i * 37 % 5000 + 1);
        memory[0] = 1;
        free(memory);
    }
    return unused;
}

static void *prints(void *file) {
    while (!stop) fprintf((FILE *)file, "%d ", 7);
    return NULL;
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 10);
    ok(pthread_atfork(prepare_1, parent_1, child_1));
    ok(pthread_atfork(prepare_2, parent_2, child_2));
    FILE *null = fopen("/dev/null", "w");
    expect(null != NULL);
    pthread_t threads[] = {start(changes, NULL), start(allocates, NULL), start(prints, null)};
    for (long i = 0; i < rounds; i++) {
        memset(order, 0, sizeof order);
        pid_t pid = must(fork());
        if (pid == 0) {
            expect(!strcmp(order, "PpcC"));
            expect(protected[0] == protected[1]);
            ok(pthread_mutex_lock(&lock));
            char *memory = malloc(10000);
            free(memory);
            expect(fprintf(null, "child") == 5 && fflush(null) == 0);
            ok(pthread_mutex_unlock(&lock));
            _exit(7);
        }
        expect(!strcmp(order, "PpaA"));
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    // vfork and posix_spawn call none of them.
    memset(order, 0, sizeof order);
    pid_t pid = vfork();
    if (pid == 0) _exit(0);
    expect(must(waitpid(pid, NULL, 0)) == pid && order[0] == 0);
    stop = 1;
    for (int i = 0; i < 3; i++) finish(threads[i]);
    say("changed %ld times\n", protected[0]);
}
