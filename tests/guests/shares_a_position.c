// A parent, a thread of it, and children that it forks while the thread reads, all read from one descriptor, whose position they share: nobody knows who gets what. With
// `seeks` they move the position as well, among few places. Each says how much it has read, and a sum. With `back_and_forth` another thread moves the position again and
// again between two places; what is read lies behind each other there. Usage: shares_a_position FILE CHILDREN [seeks | back_and_forth]
// run: /bin/bash 3
// run: /bin/bash 3 seeks
// run: /bin/bash 0 back_and_forth
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

#define PAGE 4096

static void *moves_it(void *unused) {
    (void)unused;
    for (long i = 0; i < 30000; i++) must(lseek(fd, mix(i) % 2 * PAGE, SEEK_SET));
    return NULL;
}

// Reads pages while the position is moved.
static void back_and_forth(void) {
    unsigned char page[PAGE];
    struct sum all = {0, 0};
    pthread_t mover = start(moves_it, NULL);
    for (long i = 0; i < 3000; i++) {
        ssize_t n = must(read(fd, page, sizeof page));
        all.bytes += n;
        all.sum = mix(all.sum + hash_bytes(page, n));
    }
    finish(mover);
    tell_sum("reader", 0, all);
}

int main(int argc, char **argv) {
    expect(argc > 2);
    fd = must(open(argv[1], O_RDONLY));
    if (argc > 3 && !strcmp(argv[3], "back_and_forth")) {
        back_and_forth();
        return 0;
    }
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
