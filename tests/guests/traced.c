// What tests/origin.rs asks of a recording: where values come from. A wrong character goes from a file through a process, a pipe and three copies into
// the message of a crash; others are constants, computed, or go through registers, structures, vectors and threads. The tests know the names, the
// numbers, and the comments that begin with "here".
// flags: -O0
// variant: fast -O2
// run:
// run: crash => SIGABRT
#include "guest.h"

#include <sys/uio.h>
#include <sys/wait.h>

#define PLACE 21

struct record {
    int length;
    char text[64];
};

struct pair {
    long first, second;
};

// A file's bytes go into a pipe, by way of a structure.
static void produce(int from, int to) {
    char page[256];
    struct record record;
    memset(&record, 0, sizeof record);
    expect(read(from, page, sizeof page) > 0); // here the file is read
    record.length = 40;
    memcpy(record.text, page + 10, 40); // here the producer copies
    expect(write(to, &record, sizeof record) == sizeof record);
}

static char message[64];
static struct record kept;
static int total;
static long product;
static struct pair here, there;
static char *name;
static char stale[16];
static char sent[8];
static char joined[8];

__attribute__((noinline)) static void copy_text(char *to, const char *from) {
    while ((*to++ = *from++)) continue; // here it is copied character by character
}

__attribute__((noinline)) static void consume(int from) {
    struct record record;
    expect(read(from, &record, sizeof record) == sizeof record); // here the pipe is read
    kept = record; // here the structure is copied
    char *copy = malloc(64);
    copy_text(copy, kept.text);
    memcpy(message, copy, 64); // here the message is made
    free(copy);
}

__attribute__((noinline)) static int add(int a, int b) {
    return a + b; // here it is added
}

static void compute(void) {
    int one = 40;
    int two = 2;
    total = add(one, two);
    product = (long)total * 3; // here it is multiplied
    here.first = product;
    here.second = 7;
    there = here;
    name = strdup("constant"); // here a constant is copied
}

static void *other(void *arg) {
    char *text = arg;
    strcpy(joined, text); // here another thread writes
    return NULL;
}

static void through_vector(void) {
    int ends[2];
    char a[] = "abc", b[] = "defg";
    struct iovec parts[] = {{a, 3}, {b, 4}};
    must(pipe(ends));
    expect(writev(ends[1], parts, 2) == 7);
    expect(read(ends[0], sent, 2) == 2);
    expect(read(ends[0], sent + 2, 5) == 5);
}

__attribute__((noinline)) static void crash(void) {
    fprintf(stderr, "bad: %s\n", message);
    abort();
}

int main(int argc, char **argv) {
    struct rlimit { unsigned long soft, hard; } none = {0, 0};
    must(syscall(SYS_setrlimit, 4, &none));
    int ends[2];
    must(pipe(ends));
    const char *path = argc > 2 ? argv[2] : argv[0];
    int file = open(path, O_RDONLY);
    must(file);
    pid_t child = fork();
    must(child);
    if (child == 0) {
        close(ends[0]);
        if (argc > 2) lseek(file, 100, SEEK_SET);
        produce(file, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    consume(ends[0]);
    must(waitpid(child, NULL, 0));
    compute();
    through_vector();
    pthread_t thread;
    must(pthread_create(&thread, NULL, other, "joined"));
    must(pthread_join(thread, NULL));
    say("total %d, %ld, %s, %s, %s\n", total, there.first, name, sent, joined);
    if (argc > 1) crash();
    return stale[0];
}
