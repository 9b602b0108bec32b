// Threads append to one file through descriptors of their own: every record is whole, none is lost; their order differs.
// run: 4 100
#include "guest.h"

static long records;

static void *appender(void *argument) {
    int fd = must(open("log", O_WRONLY | O_APPEND));
    for (long i = 0; i < records; i++) {
        char line[32];
        int n = snprintf(line, sizeof line, "%c record %05ld of a thread\n", (char)('A' + (long)argument), i);
        // The position that a seek sets does not count.
        if (i % 10 == 0) must(lseek(fd, 0, SEEK_SET));
        expect(write(fd, line, n) == n);
    }
    must(close(fd));
    return NULL;
}

int main(int argc, char **argv) {
    long threads = number(argc, argv, 1, 4);
    records = number(argc, argv, 2, 100);
    int fd = must(open("log", O_CREAT | O_RDWR, 0600));
    pthread_t thread[16];
    expect(threads <= 16);
    for (long i = 0; i < threads; i++) thread[i] = start(appender, (void *)i);
    for (long i = 0; i < threads; i++) finish(thread[i]);
    static char text[1 << 20];
    ssize_t n = must(read(fd, text, sizeof text));
    long next[16] = {0}, all = 0, changes = 0;
    char last = 0;
    for (char *line = text; line < text + n; line = strchr(line, '\n') + 1, all++) {
        char who;
        long which;
        expect(sscanf(line, "%c record %ld of a thread\n", &who, &which) == 2);
        expect(which == next[who - 'A']++);
        changes += who != last;
        last = who;
    }
    expect(all == threads * records);
    say("%ld changes, hash %lu\n", changes, hash_bytes(text, n));
}
