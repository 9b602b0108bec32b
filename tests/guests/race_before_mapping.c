// Threads add to a counter without a lock, and some additions are lost. When all have ended the program maps a file, and only then tells the kernel what the
// counter came to: in a recording in epochs the race is over with its epoch, and nothing has been told of it.
// run: 3 2000000
#include "guest.h"

static volatile long counter;
static long rounds;

static void *body(void *unused) {
    for (long i = 0; i < rounds; i++) counter = counter + 1;
    return unused;
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 3);
    rounds = number(argc, argv, 2, 2000000);
    pthread_t threads[16];
    for (int i = 0; i < count; i++) threads[i] = start(body, NULL);
    for (int i = 0; i < count; i++) finish(threads[i]);
    int fd = must(open("/proc/self/exe", O_RDONLY));
    expect(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED);
    // A replay compares the arguments of calls.
    expect(lseek(-1, counter, SEEK_SET) == -1 && errno == EBADF);
    expect(counter > 0 && counter <= count * rounds);
    say("added\n");
}
