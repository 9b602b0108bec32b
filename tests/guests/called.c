// Functions for a debugger to call, while another thread waits.
// flags: -O0
#include "guest.h"
#include <ctype.h>

static int counter = 7;
static int *volatile nowhere;
static volatile int fields[4] = {1, 2, 3, 4};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t come = PTHREAD_COND_INITIALIZER;
static int has_come;

__attribute__((used)) static int add(int a, int b) { return a + b; }

__attribute__((used)) static double half(double d) { return d / 2; }

__attribute__((used)) static int bump(volatile int *also) {
    *also = 99;
    return ++counter;
}

__attribute__((used)) static char *shout(const char *text) {
    size_t len = strlen(text);
    char *loud = malloc(len + 1);
    expect(loud != NULL);
    for (size_t i = 0; i <= len; i++) loud[i] = (char)toupper(text[i]);
    printf("shouted %s\n", loud);
    fflush(stdout);
    return loud;
}

// Enough memory for the allocator to ask the kernel for more.
__attribute__((used)) static long allocate(void) {
    long sum = 0;
    for (int i = 1; i <= 64; i++) {
        char *block = malloc((size_t)i * 65536);
        expect(block != NULL);
        memset(block, i, (size_t)i * 65536);
        sum += block[i];
    }
    return sum;
}

__attribute__((used)) static int crash(void) {
    counter = 1000;
    return *nowhere;
}

__attribute__((used)) static int outside(void) {
    int fd = open("/dev/null", O_RDONLY);
    pid_t child = fork();
    return fd < 0 && child < 0 && getpid() > 0 && kill(1, 0) < 0;
}

static void *waiter(void *argument) {
    must(pthread_mutex_lock(&mutex));
    while (!has_come) must(pthread_cond_wait(&come, &mutex));
    must(pthread_mutex_unlock(&mutex));
    return argument;
}

static void here(int local) {
    counter += local;
    say("here %d %d\n", counter, local);
}

int main(int argc, char **argv) {
    pthread_t thread;
    must(pthread_create(&thread, NULL, waiter, NULL));
    here(1);
    here(2);
    must(pthread_mutex_lock(&mutex));
    has_come = 1;
    must(pthread_cond_signal(&come));
    must(pthread_mutex_unlock(&mutex));
    must(pthread_join(thread, NULL));
    here(fields[2]);
    if (argc > 1 && strcmp(argv[1], "crash") == 0) *nowhere = counter;
    return 0;
}
