// All that a checkpoint must keep: threads that begin and end, hand-offs and cuts, memory that is shared anonymously and with a file,
// a handler on a stack of its own, vector registers, output. Threads race for `order_of`, so that the memory depends on who ran when.
// flags: -O1 -g
#include "guest.h"
#include <signal.h>

#define ROUNDS 8
#define WORK 12000000

static volatile uint64_t *anonymous, *of_file;
static volatile uint64_t order_of[64 * 1024];
static volatile uint64_t next_place;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int handled;

static void on_signal(int signal) {
    handled += signal;
    anonymous[1] += next_place;
}

static void *body(void *argument) {
    static char stack[64 * 1024];
    uint64_t me = (uintptr_t)argument;
    if (me == 0) {
        stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
        must(sigaltstack(&alternate, NULL));
        must(pthread_kill(pthread_self(), SIGUSR1));
    }
    double fraction = 1.0 / (double)(me + 3);
    for (long i = 0; i < WORK; i++) {
        fraction = fraction * 3.7 * (1.0 - fraction);
        if (i % 4096 == 0) {
            order_of[next_place++ % 65536] = me + i;
            of_file[i / 4096 % 512] += me;
        }
        if (i % 100000 == 0) {
            must(pthread_mutex_lock(&mutex));
            anonymous[0] += (uint64_t)(fraction * 1e6);
            must(pthread_mutex_unlock(&mutex));
        }
    }
    anonymous[2 + me] += (uint64_t)(fraction * 1e9);
    return NULL;
}

int main(void) {
    anonymous = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect(anonymous != MAP_FAILED);
    int fd = must(open("moments.data", O_RDWR | O_CREAT | O_TRUNC, 0600));
    must(ftruncate(fd, 4096));
    of_file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    expect(of_file != MAP_FAILED);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    must(sigaction(SIGUSR1, &action, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[3];
        for (uintptr_t i = 0; i < 3; i++) must(pthread_create(&threads[i], NULL, body, (void *)i));
        for (int i = 0; i < 3; i++) must(pthread_join(threads[i], NULL));
        say("round %d: %lu %lu\n", round, anonymous[0], of_file[round]);
    }
    uint64_t sum = handled;
    for (int i = 0; i < 65536; i++) sum = sum * 31 + order_of[i];
    say("order %lu\n", sum);
    return 0;
}
