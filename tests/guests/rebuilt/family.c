// A process that has a child, which goes on as another program, and threads of its own after that.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tell.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static char heard[64];

static void *work(void *p) {
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&mutex);
        sum = sum * 3 % 1009 + (long)p;
        if (i % 50 == 0) tell("sum %ld\n", sum);
        pthread_mutex_unlock(&mutex);
        if (i % 20 == 0) sched_yield();
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[2];
    for (long i = 0; i < 2; i++) {
        if (pthread_create(&all[i], NULL, work, (void *)(i + 1))) exit(2);
    }
    for (int i = 0; i < 2; i++) pthread_join(all[i], NULL);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        threads();
        tell("the second says %ld\n", sum);
        printf("%ld\n", sum);
        return 0;
    }
    int ends[2];
    if (pipe(ends)) return 2;
    pid_t child = fork();
    if (child == 0) {
#ifdef CHANGED
        volatile char frame[300];
        frame[7] = 1;
#endif
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execl("/bin/sh", "sh", "-c", "\"$0\" again; /bin/echo and a shell", argv[0], NULL);
        return 3;
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], heard + n, sizeof heard - 1 - n)) > 0;) n += (size_t)got;
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) return 2;
    check(strstr(heard, "and a shell") != NULL);
    threads();
    tell("heard %s", heard);
    printf("hello: sum %ld after %s", sum, heard);
    return (int)(sum % 50);
}
