// Two threads compute without end while a third must answer questions that come through a pipe; when it has answered enough, all end.
// run: 10
#include "guest.h"

static volatile int stop;
static volatile uint64_t progress[2][8];
static int question[2], answer[2];

static void *computes(void *p) {
    volatile uint64_t *mine = progress[(uintptr_t)p];
    uint64_t x = 1;
    while (!stop) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        mine[0]++;
    }
    return (void *)x;
}

static void *answers(void *unused) {
    (void)unused;
    long n;
    while (read(question[0], &n, sizeof n) == sizeof n) {
        uint64_t reply[2] = {progress[0][0], progress[1][0]};
        expect(write(answer[1], reply, sizeof reply) == sizeof reply);
    }
    return NULL;
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 10);
    must(pipe(question));
    must(pipe(answer));
    pthread_t a = start(computes, (void *)0), b = start(computes, (void *)1), c = start(answers, NULL);
    int64_t longest = 0;
    for (long i = 0; i < rounds; i++) {
        int64_t t = now_ns(CLOCK_MONOTONIC);
        expect(write(question[1], &i, sizeof i) == sizeof i);
        uint64_t reply[2];
        expect(read(answer[0], reply, sizeof reply) == sizeof reply);
        t = now_ns(CLOCK_MONOTONIC) - t;
        if (t > longest) longest = t;
        say("answer %ld: %lu %lu\n", i, reply[0], reply[1]);
    }
    stop = 1;
    must(close(question[1]));
    finish(c);
    uint64_t x = (uint64_t)finish(a) ^ (uint64_t)finish(b);
    say("longest %ld ns, state %lu\n", longest, x);
}
