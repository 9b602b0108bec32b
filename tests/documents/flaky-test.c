// A test that fails now and then: two threads, and whoever comes to it first at a bad moment of the clock.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static void *look(void *late) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *(int *)late = now.tv_nsec / 1000 % 3 == 0;
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    int late[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, look, &late[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    puts(late[0] || late[1] ? "too late" : "in time");
    return late[0] || late[1];
}
