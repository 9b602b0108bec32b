// A robust mutex in a file whose owner is killed while nobody else has the file mapped: who maps it afterwards learns of it.
// run: kill
// run: term
// run: exit
#include "guest.h"
#include <sys/wait.h>

static pthread_mutex_t *map(int file) {
    return must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
}

int main(int argc, char **argv) {
    expect(argc == 2);
    int file = must(memfd_create("robust", 0)), ready[2];
    must(ftruncate(file, 4096));
    must(pipe(ready));
    pid_t pid = must(fork());
    if (pid == 0) {
        pthread_mutex_t *m = map(file);
        pthread_mutexattr_t robust;
        ok(pthread_mutexattr_init(&robust));
        ok(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST));
        ok(pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED));
        // Two of them, the second one not at the beginning of the memory.
        for (int i = 0; i < 2; i++) {
            ok(pthread_mutex_init(&m[i], &robust));
            ok(pthread_mutex_lock(&m[i]));
        }
        expect(must(write(ready[1], "", 1)) == 1);
        if (!strcmp(argv[1], "exit")) _exit(0);
        for (;;) pause();
    }
    char byte;
    expect(must(read(ready[0], &byte, 1)) == 1);
    if (!strcmp(argv[1], "kill")) must(kill(pid, SIGKILL));
    if (!strcmp(argv[1], "term")) must(kill(pid, SIGTERM));
    expect(must(waitpid(pid, NULL, 0)) == pid);
    pthread_mutex_t *m = map(file);
    expect(pthread_mutex_trylock(&m[0]) == EOWNERDEAD);
    expect(pthread_mutex_lock(&m[1]) == EOWNERDEAD);
    ok(pthread_mutex_consistent(&m[1]));
    ok(pthread_mutex_unlock(&m[1]));
    ok(pthread_mutex_unlock(&m[0]));
    expect(pthread_mutex_lock(&m[0]) == ENOTRECOVERABLE);
    say("%s: told, repaired\n", argv[1]);
}
