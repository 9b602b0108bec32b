// Guard pages (madvise(2), MADV_GUARD_INSTALL: what glibc and the JVM's kin put below stacks since Linux 6.13): a touch faults, a call that comes to one in the
// midst of its buffer has written what lies before it, they stay when memory is given back, go with mremap, are there in a child.
//   guard_pages [stays [ROUNDS]]    stays: says "go", and looks once more for each byte that it reads, or so many times
// run:
#include "guest.h"
#include <sys/wait.h>

#define PAGE 4096
#define INSTALL 102
#define REMOVE 103
#define PAGES 8

static _Thread_local sigjmp_buf out;
static volatile long faults;

static void fault(int unused) {
    (void)unused;
    faults++;
    siglongjmp(out, 1);
}

// What is there; -1 for a fault.
static int look(const volatile char *at) {
    return sigsetjmp(out, 1) ? -1 : *at;
}

static int put(volatile char *at) {
    if (sigsetjmp(out, 1)) return -1;
    *at = 7;
    return 0;
}

// A pipe's bytes are read into memory that ends two bytes further on.
static void read_into(const char *name, char *end) {
    int p[2];
    char *from = end - 2;
    memset(from, '.', 2);
    ok(pipe(p));
    must(write(p[1], "abcdefgh", 8));
    errno = 0;
    long got = read(p[0], from, 8);
    say("%s: read %ld errno %d, there is %d %d\n", name, got, errno, look(from), look(from + 1));
    errno = 0;
    long put = write(p[1], from, 8);
    say("%s: write %ld errno %d\n", name, put, errno);
    close(p[0]), close(p[1]);
}

static void try(const char *name, char *m) {
    expect(m != MAP_FAILED);
    memset(m, 5, PAGES * PAGE);
    ok(madvise(m + PAGE, 3 * PAGE, INSTALL));
    expect(look(m) == 5 && look(m + PAGE) == -1 && put(m + 2 * PAGE) == -1 && look(m + 4 * PAGE) == 5);
    read_into(name, m + PAGE);
    ok(madvise(m, PAGES * PAGE, MADV_DONTNEED));
    expect(look(m + PAGE) == -1 && look(m + 3 * PAGE) == -1);
    say("%s: %d %d\n", name, look(m), look(m + 4 * PAGE));
    ok(madvise(m, PAGES * PAGE, REMOVE));
    say("%s: %d %d\n", name, look(m + PAGE), look(m + 3 * PAGE));
    expect(put(m + 2 * PAGE) == 0 && look(m + 2 * PAGE) == 7);
    ok(madvise(m + 2 * PAGE, PAGE, INSTALL));
    read_into(name, m + 2 * PAGE);
}

// Guards move, and what a mapping grows by has none.
static void move(void) {
    char *m = must((char *)mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memset(m, 1, PAGES * PAGE);
    ok(madvise(m, PAGE, INSTALL));
    ok(madvise(m + (PAGES - 1) * PAGE, PAGE, INSTALL));
    char *n = must((char *)mremap(m, PAGES * PAGE, 3 * PAGES * PAGE, MREMAP_MAYMOVE));
    expect(look(n) == -1 && look(n + PAGE) == 1 && look(n + (PAGES - 1) * PAGE) == -1 && look(n + PAGES * PAGE) == 0);
    read_into("before the end", n + (PAGES - 1) * PAGE);
    read_into("behind it", n + (PAGES + 1) * PAGE);
    pid_t child = must(fork());
    if (child == 0) {
        say("a child: %d %d\n", look(n), look(n + PAGE));
        _exit(0);
    }
    int status;
    must(waitpid(child, &status, 0));
    expect(status == 0);
}

static char *of_both, *shared_by_both;
static sem_t asked, answered;

static void *looks(void *unused) {
    for (int i = 0; i < 4; i++) {
        ok(sem_wait(&asked));
        say("another: %d %d, shared %d\n", look(of_both), look(of_both + PAGE), look(shared_by_both + PAGE));
        read_into("another", of_both + PAGE);
        ok(sem_post(&answered));
    }
    return unused;
}

static void ask(void) {
    ok(sem_post(&asked));
    ok(sem_wait(&answered));
}

// They are there for all threads.
static void beside_another(void) {
    of_both = must((char *)mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    shared_by_both = must((char *)mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    memset(of_both, 1, PAGES * PAGE);
    memset(shared_by_both, 2, PAGES * PAGE);
    ok(sem_init(&asked, 0, 0));
    ok(sem_init(&answered, 0, 0));
    pthread_t thread = start(looks, NULL);
    ask();
    ok(madvise(of_both + PAGE, PAGE, INSTALL));
    ok(madvise(shared_by_both + PAGE, PAGE, INSTALL));
    ask();
    of_both = must((char *)mremap(of_both, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE));
    ask();
    ok(madvise(of_both, PAGES * PAGE, REMOVE));
    ok(madvise(shared_by_both, PAGES * PAGE, REMOVE));
    ask();
    finish(thread);
    say("at last: %d %d\n", look(of_both + PAGE), look(shared_by_both + PAGE));
}

int main(int argc, char **argv) {
    signal(SIGSEGV, fault);
    char *m = must((char *)mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (argc > 1 && !strcmp(argv[1], "stays")) {
        memset(m, 3, PAGES * PAGE);
        ok(madvise(m + PAGE, 2 * PAGE, INSTALL));
        say("go\n");
        char c;
        long left = number(argc, argv, 2, 0);
        do {
            say("%d %d %d %d\n", look(m), look(m + PAGE), look(m + 2 * PAGE), look(m + 3 * PAGE));
            read_into("there", m + PAGE);
        } while (argc > 2 ? --left > 0 : read(0, &c, 1) == 1);
        say("end %ld\n", faults);
        return 0;
    }
    try("private", m);
    try("shared", (char *)mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    int file = must(memfd_create("guarded", 0));
    ok(ftruncate(file, PAGES * PAGE));
    try("a file", (char *)mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    try("a file's copy", (char *)mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0));
    move();
    beside_another();
    say("%ld faults\n", faults);
}
