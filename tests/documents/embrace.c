// Two threads take two locks, each in its own order, and wait for each other for ever.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both_have_one;

static void *forward(void *arg) {
    pthread_mutex_lock(&first);
    pthread_barrier_wait(&both_have_one);
    pthread_mutex_lock(&second);
    return arg;
}

static void *backward(void *arg) {
    pthread_mutex_lock(&second);
    pthread_barrier_wait(&both_have_one);
    pthread_mutex_lock(&first);
    return arg;
}

int main(void) {
    pthread_t a, b;
    pthread_barrier_init(&both_have_one, NULL, 2);
    pthread_create(&a, NULL, forward, NULL);
    pthread_create(&b, NULL, backward, NULL);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    return 0;
}
