// Threads that compute, and print what came out.
#include <pthread.h>
#include <stdio.h>

static void *add(void *to) {
    unsigned long *sum = to;
    for (int i = 0; i < 1000; i++) *sum += i;
    return NULL;
}

int main(void) {
    pthread_t threads[3];
    unsigned long sums[3] = {0};
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, add, &sums[i]);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        printf("%lu\n", sums[i]);
    }
    return 0;
}
