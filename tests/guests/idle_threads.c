// One thread works, while many others wait for its end.
// run: 20 2000
#include "guest.h"

static sem_t end;

static void *waits(void *unused) {
    while (sem_wait(&end)) continue;
    return unused;
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 20), work = number(argc, argv, 2, 2000);
    pthread_t *threads = (pthread_t *)calloc(count, sizeof *threads);
    pthread_attr_t small;
    ok(pthread_attr_init(&small));
    ok(pthread_attr_setstacksize(&small, 64 << 10));
    ok(sem_init(&end, 0, 0));
    for (long i = 0; i < count; i++) ok(pthread_create(&threads[i], &small, waits, NULL));
    uint64_t x = 0;
    for (long i = 0; i < work; i++) {
        x = mix(x + burn(5000));
        expect(getppid() > 0);
    }
    for (long i = 0; i < count; i++) must(sem_post(&end));
    for (long i = 0; i < count; i++) finish(threads[i]);
    free(threads);
    say("%ld waited: %lu\n", count, x);
}
