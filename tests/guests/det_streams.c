// What threads do with libc's streams: they read lines of one stream, lock one around a mutex, print while others fork, write to one file, leave bytes in a
// buffer at the end, give a stream another buffer, write for ever. Says what came of it.
// run: lines
// run: locked
// run: guarded
// run: forks
// run: file
// run: unflushed => 7
// run: buffer
// run: for_ever
// run: wide
// run: pipe
// run: unlocked
#include "guest.h"
#include <sys/wait.h>
#include <wchar.h>

#define THREADS 4
#define LINES 60

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;
static int counter, shared;
static volatile bool enough;
static uint64_t order;

static void *own(int me) {
    return (void *)(intptr_t)me;
}

static void all(void *(*body)(void *)) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) threads[i] = start(body, own(i));
    for (int i = 0; i < THREADS; i++) finish(threads[i]);
}

// Each line comes to one thread, as a whole.
static void *reads(void *p) {
    int me = (int)(intptr_t)p;
    char *line = NULL;
    size_t room = 0;
    int last = -1;
    while (getline(&line, &room, file) > 0) {
        int n, end = 0;
        expect(sscanf(line, "line %d of the file\n%n", &n, &end) == 1 && end == (int)strlen(line));
        expect(n > last);
        last = n;
        printf("thread %d has line %d\n", me, n);
        burn(1000 * (me + 1));
    }
    free(line);
    return NULL;
}

static void lines(void) {
    file = tmpfile();
    expect(file);
    for (int i = 0; i < LINES * 4; i++) fprintf(file, "line %d of the file\n", i);
    rewind(file);
    all(reads);
}

// A mutex is taken while a stream is locked.
static void *locks(void *p) {
    int me = (int)(intptr_t)p;
    for (int i = 0; i < 20; i++) {
        flockfile(stdout);
        for (const char *c = "thread "; *c; c++) putc_unlocked(*c, stdout);
        ok(pthread_mutex_lock(&lock));
        order = mix(order + me);
        ok(pthread_mutex_unlock(&lock));
        putc_unlocked('0' + me, stdout);
        if (i % 5 == me) printf(" and a number %d", i);
        putc_unlocked('\n', stdout);
        funlockfile(stdout);
        printf("between %d\n", me);
    }
    return NULL;
}

// What a stream's lock protects that is not the stream's.
static void *counts(void *p) {
    int me = (int)(intptr_t)p;
    for (int i = 0; i < 200; i++) {
        if (i % 3 == me) printf("%d counts\n", me);
        flockfile(stdout);
        counter++;
        funlockfile(stdout);
        while (ftrylockfile(file) != 0) sched_yield();
        shared++;
        funlockfile(file);
    }
    return NULL;
}

static void guarded(void) {
    file = tmpfile();
    expect(file);
    all(counts);
    expect(counter == 200 * THREADS && shared == 200 * THREADS);
}

// A child has what is in the buffers, too: it must not write that.
static void *prints_and_forks(void *p) {
    int me = (int)(intptr_t)p;
    for (int i = 0; i < 10; i++) {
        printf("before %d of %d\n", i, me);
        if (me == 1 && i % 4 == 0) {
            pid_t child = must(fork());
            if (child == 0) {
                // Nobody has it locked here, and what was printed before is in it.
                expect(fprintf(file, "child\n") == 6);
                _exit(0);
            }
            int status;
            must(waitpid(child, &status, 0));
            expect(status == 0);
        }
        fprintf(file, "%d\n", me);
        printf("after %d of %d\n", i, me);
    }
    return NULL;
}

static void *writes(void *p) {
    int me = (int)(intptr_t)p;
    for (int i = 0; i < 500; i++) {
        fprintf(file, "%d %d %.*s\n", me, i, (me * 7 + i) % 60, "............................................................");
        if (i % 100 == 99) {
            ok(pthread_mutex_lock(&lock));
            order = mix(order + me);
            ok(pthread_mutex_unlock(&lock));
        }
    }
    return NULL;
}

// All that was written is there, of each thread in its order.
static void look_into_file(void) {
    int next[THREADS] = {0}, count = 0;
    char line[256];
    uint64_t hash = 0;
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        int me, i;
        expect(sscanf(line, "%d %d ", &me, &i) == 2 && me >= 0 && me < THREADS);
        expect(next[me] == i);
        next[me]++;
        count++;
        hash = mix(hash ^ hash_bytes(line, strlen(line)));
    }
    expect(count == 500 * THREADS);
    printf("%d lines, %lu\n", count, (unsigned long)hash);
}

// The last bytes are still in the buffer when the program ends.
static void *leaves(void *p) {
    printf("%d leaves this\n", (int)(intptr_t)p);
    return NULL;
}

static void *ends(void *p) {
    printf("and this is left by %d", (int)(intptr_t)p);
    puts(", who ends the program");
    exit(7);
}

static void *changes_buffer(void *p) {
    int me = (int)(intptr_t)p;
    static char small[64], large[1 << 17];
    for (int i = 0; i < 40; i++) {
        printf("%d prints %d\n", me, i);
        if (me == 0 && i % 10 == 5) {
            fflush(stdout);
            switch (i / 10) {
            case 0: setvbuf(stdout, small, _IOFBF, sizeof small); break;
            case 1: setvbuf(stdout, NULL, _IONBF, 0); break;
            case 2: setvbuf(stdout, large, _IOFBF, sizeof large); break;
            default: setvbuf(stdout, small, _IOLBF, sizeof small);
            }
        }
    }
    return NULL;
}

// The others go on beside it.
static void *never_stops(void *p) {
    (void)p;
    for (uint64_t i = 0; !enough; i++) fprintf(file, "%lu\n", (unsigned long)i);
    return NULL;
}

static void for_ever(void) {
    file = fopen("/dev/null", "w");
    expect(file);
    pthread_t writer = start(never_stops, NULL), others[2];
    for (int i = 0; i < 2; i++) others[i] = start(locks, own(i));
    for (int i = 0; i < 2; i++) finish(others[i]);
    enough = true;
    finish(writer);
}

static void *prints_wide(void *p) {
    int me = (int)(intptr_t)p;
    for (int i = 0; i < 50; i++) wprintf(L"thread %d prints %d widely\n", me, i);
    return NULL;
}

// A write to a pipe of the program's own is a message: what was written to memory before it is there for who reads.
static int ends_of_pipe[2];
static uint64_t message[64];

static void *sends(void *p) {
    (void)p;
    FILE *to = fdopen(ends_of_pipe[1], "w");
    for (int i = 0; i < 64; i++) {
        message[i] = mix(i);
        if (i % 2) {
            expect(fprintf(to, "%c", i) == 1 && fflush(to) == 0);
        } else {
            char c = i;
            must(write(ends_of_pipe[1], &c, 1));
        }
    }
    fclose(to);
    return NULL;
}

static void *receives(void *p) {
    (void)p;
    for (int i = 0; i < 64; i++) {
        char c;
        must(read(ends_of_pipe[0], &c, 1));
        expect(c == i && message[i] == mix(i));
    }
    return NULL;
}

static void pipes(void) {
    must(pipe(ends_of_pipe));
    pthread_t reader = start(receives, NULL), writer = start(sends, NULL);
    finish(reader);
    finish(writer);
}

// What is done to a stream without its lock: one is made, of a thread's own; another has a lock of the program's.
static void *uses_without_lock(void *p) {
    int me = (int)(intptr_t)p;
    char text[64];
    for (int i = 0; i < 20; i++) {
        ok(pthread_mutex_lock(&lock));
        FILE *own = tmpfile();
        expect(own);
        fprintf(own, "%d", me);
        putc_unlocked(' ', own);
        ok(pthread_mutex_unlock(&lock));
        fprintf(own, "%d", i);
        putc_unlocked('\n', own);
        printf("thread %d prints %d\n", me, i);
        ok(pthread_mutex_lock(&lock));
        fprintf(file, "thread %d", me);
        putc_unlocked(':', file);
        fprintf(file, " %d", i);
        putc_unlocked('\n', file);
        rewind(own);
        int a, b;
        expect(fgets(text, sizeof text, own) && sscanf(text, "%d %d\n", &a, &b) == 2 && a == me && b == i);
        fclose(own);
        ok(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

static void unlocked(void) {
    char text[64];
    int count = 0, next[THREADS] = {0};
    all(uses_without_lock);
    rewind(file);
    while (fgets(text, sizeof text, file)) {
        int me, i;
        expect(sscanf(text, "thread %d: %d\n", &me, &i) == 2 && me < THREADS && next[me]++ == i);
        count++;
    }
    expect(count == 20 * THREADS);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "lines";
    file = tmpfile();
    expect(file);
    if (strcmp(what, "lines") == 0) lines();
    if (strcmp(what, "locked") == 0) all(locks);
    if (strcmp(what, "guarded") == 0) guarded();
    if (strcmp(what, "forks") == 0) all(prints_and_forks);
    if (strcmp(what, "file") == 0) {
        all(writes);
        look_into_file();
    }
    if (strcmp(what, "unflushed") == 0) {
        all(leaves);
        start(ends, own(9));
        for (;;) pause();
    }
    if (strcmp(what, "buffer") == 0) all(changes_buffer);
    if (strcmp(what, "for_ever") == 0) for_ever();
    if (strcmp(what, "wide") == 0) {
        all(prints_wide);
        return 0;
    }
    if (strcmp(what, "unlocked") == 0) unlocked();
    if (strcmp(what, "pipe") == 0) pipes();
    printf("order %lu\n", (unsigned long)order);
}
