// Threads write while others go on: to the program's own output, to files, to a pipe of their own, to a filter that is another process, to what is full and to a pipe that nobody reads. Each sees at once what
// it, or a thread before it, has written.
// run: 3 100
#include "guest.h"
#include <sys/stat.h>
#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static long rounds;
static int ends[2];

// There are always two threads.
static void *waits(void *unused) {
    ok(pthread_mutex_lock(&lock));
    for (;;) ok(pthread_cond_wait(&never, &lock));
    return unused;
}

static void *lines(void *p) {
    char line[64];
    for (long i = 0; i < rounds; i++) {
        int length = snprintf(line, sizeof line, "thread %ld, line %ld\n", (long)p, i);
        expect(write(1, line, (size_t)length) == length);
        for (volatile int k = 0; k < 1000; k++) {}
    }
    return NULL;
}

static void *reads_all(void *p) {
    static char some[4096];
    long sum = 0;
    for (ssize_t n; (n = must(read(*(int *)p, some, sizeof some))) > 0;) sum += n;
    return (void *)sum;
}

static void writes_much(int to) {
    static char much[300000];
    for (int i = 0; i < 4; i++)
        for (size_t done = 0; done < sizeof much;) done += (size_t)must(write(to, much + done, sizeof much - done));
    must(close(to));
}

static void to_a_file(void) {
    char name[] = "/tmp/held-XXXXXX", other[64], back[64];
    int file = must(mkstemp(name));
    for (int i = 100; i < 200; i++) expect(dprintf(file, "%d ", i) == 4);
    expect(lseek(file, 0, SEEK_CUR) == 400);
    expect(pread(file, back, 8, 392) == 8 && memcmp(back, "198 199 ", 8) == 0);
    for (int i = 0; i < 50; i++) expect(pwrite(file, "xy", 2, 4 * i) == 2);
    int second = must(open(name, O_RDONLY));
    expect(read(second, back, 8) == 8 && memcmp(back, "xy0 xy1 ", 8) == 0);
    must(close(second));
    must(close(file));
    file = must(open(name, O_WRONLY | O_APPEND));
    for (int i = 0; i < 20; i++) expect(write(file, "end", 3) == 3);
    struct stat found;
    must(stat(name, &found));
    expect(found.st_size == 460);
    expect(write(file, "!", 1) == 1);
    snprintf(other, sizeof other, "%s.new", name);
    must(rename(name, other));
    must(stat(other, &found));
    expect(found.st_size == 461);
    must(close(file));
    must(unlink(other));
}

static void to_a_thread(void) {
    must(pipe(ends));
    pthread_t reader = start(reads_all, &ends[0]);
    writes_much(ends[1]);
    expect((long)finish(reader) == 1200000);
    must(close(ends[0]));
}

static void to_a_filter(void) {
    int to[2], from[2];
    must(pipe(to));
    must(pipe(from));
    pid_t filter = must(fork());
    if (filter == 0) {
        must(dup2(to[0], 0));
        must(dup2(from[1], 1));
        for (int i = 0; i < 2; i++) {
            must(close(to[i]));
            must(close(from[i]));
        }
        execlp("cat", "cat", NULL);
        _exit(1);
    }
    must(close(to[0]));
    must(close(from[1]));
    pthread_t reader = start(reads_all, &from[0]);
    writes_much(to[1]);
    expect((long)finish(reader) == 1200000);
    must(close(from[0]));
    int status;
    expect(must(waitpid(filter, &status, 0)) == filter && status == 0);
}

static void to_nobody(void) {
    int full = must(open("/dev/full", O_WRONLY)), null = must(open("/dev/null", O_WRONLY));
    fails(ENOSPC, write(full, "x", 1));
    expect(write(null, "x", 1) == 1);
    must(close(full));
    must(close(null));
    must(pipe(ends));
    must(close(ends[0]));
    ok(signal(SIGPIPE, SIG_IGN) == SIG_ERR);
    for (int i = 0; i < 3; i++) fails(EPIPE, write(ends[1], "x", 1));
    must(close(ends[1]));
    fails(EBADF, write(ends[1], "x", 1));
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 3);
    rounds = number(argc, argv, 2, 100);
    start(waits, NULL);
    pthread_t threads[16];
    for (long i = 0; i < count; i++) threads[i] = start(lines, (void *)i);
    for (long i = 0; i < count; i++) finish(threads[i]);
    to_a_file();
    to_a_thread();
    to_a_filter();
    to_nobody();
    say("one\n");
    pid_t child = must(fork());
    if (child == 0) {
        say("two\n");
        _exit(0);
    }
    expect(must(waitpid(child, NULL, 0)) == child);
    say("three\n");
    if (argc > 3) {
        // Nobody comes to a gate any more; what was said is to be seen all the same.
        if (strcmp(argv[3], "waits") == 0) waits(NULL);
        for (volatile long i = 0;; i++) {}
    }
}
