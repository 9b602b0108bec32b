// A parent, a thread of it, and children that it forks while the thread reads, all read from one descriptor, whose position they share: nobody knows who gets what. With
// `seeks` they move the position as well, among few places. Each says how much it has read, and a sum. Usage: shares_a_position FILE CHILDREN [seeks]
// run: /bin/bash 3
// run: /bin/bash 3 seeks
#include "guest.h"

#include <sys/wait.h>

#define PIECE 65536
#define PLACES 4
#define SEEKS 150

static int fd;
static bool seeks;

struct sum {
    uint64_t sum;
    long bytes;
};

static struct sum read_on(long who, long most) {
    struct sum all = {0, 0};
    unsigned char *piece = (unsigned char *)malloc(PIECE);
    expect(piece != NULL);
    for (long i = 0; i < most; i++) {
        if (seeks) must(lseek(fd, mix(who * 1000 + i) % PLACES * PIECE, SEEK_SET));
        ssize_t n = must(read(fd, piece, PIECE));
        if (n == 0) break;
        all.bytes += n;
        all.sum = mix(all.sum + hash_bytes(piece, n));
    }
    free(piece);
    return all;
}

static void tell_sum(const char *who, long number, struct sum sum) {
    say("%s %ld: %ld bytes, %lu\n", who, number, sum.bytes, sum.sum);
}

static void *body(void *unused) {
    (void)unused;
    tell_sum("thread", 0, read_on(100, seeks ? SEEKS : LONG_MAX));
    return NULL;
}

int main(int argc, char **argv) {
    expect(argc > 2);
    fd = must(open(argv[1], O_RDONLY));
    seeks = argc > 3 && !strcmp(argv[3], "seeks");
    pthread_t thread = start(body, NULL);
    long children = number(argc, argv, 2, 3);
    struct sum own = {0, 0};
    for (long child = 0; child < children; child++) {
        struct sum part = read_on(200 + child, 3);
        own.bytes += part.bytes;
        own.sum = mix(own.sum + part.sum);
        if (must(fork()) == 0) {
            tell_sum("child", child, read_on(child, seeks ? SEEKS : LONG_MAX));
            _exit(0);
        }
    }
    struct sum part = read_on(300, seeks ? SEEKS : LONG_MAX);
    own.bytes += part.bytes;
    own.sum = mix(own.sum + part.sum);
    tell_sum("parent", 0, own);
    finish(thread);
    for (long child = 0; child < children; child++) {
        int status;
        must(wait(&status));
        expect(status == 0);
    }
}
