// Threads race for the words of a shared segment, each in a view of its own.
// run: 4 20000
#include "guest.h"
#include <sys/ipc.h>
#include <sys/shm.h>

enum { WORDS = 1024 };
static int id;
static long rounds;

static void *work(void *argument) {
    volatile uint64_t *word = (volatile uint64_t *)must(shmat(id, NULL, 0));
    uint64_t sum = (uint64_t)argument;
    for (long i = 0; i < rounds; i++) {
        sum = mix(sum + word[sum % WORDS]);
        word[sum >> 32 & (WORDS - 1)] += sum;
        if (i % 1000 == 0) sched_yield();
    }
    must(shmdt((const void *)word));
    return (void *)sum;
}

int main(int argc, char **argv) {
    long threads = number(argc, argv, 1, 4);
    rounds = number(argc, argv, 2, 20000);
    id = must(shmget(IPC_PRIVATE, WORDS * 8, 0600));
    pthread_t thread[16];
    for (long i = 0; i < threads; i++) thread[i] = start(work, (void *)(i + 1));
    uint64_t sum = 0;
    for (long i = 0; i < threads; i++) sum += (uint64_t)finish(thread[i]);
    uint64_t *word = (uint64_t *)must(shmat(id, NULL, 0));
    say("%lu %lu\n", sum, hash_bytes(word, WORDS * 8));
    must(shmctl(id, IPC_RMID, NULL));
}
