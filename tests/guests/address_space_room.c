// RLIMIT_AS of a size that leaves room: what the program has counts, and nothing else. Children and what they become have the same limit.
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

enum { LIMIT = 400 << 20 };

static void *fill(void *unused) {
    (void)unused;
    char *p = malloc(1 << 20);
    expect(p != NULL);
    memset(p, 1, 1 << 20);
    free(p);
    return NULL;
}

static void has_room(void) {
    struct rlimit now;
    must(getrlimit(RLIMIT_AS, &now));
    expect(now.rlim_cur == LIMIT);
    must(prlimit(0, RLIMIT_AS, NULL, &now));
    expect(now.rlim_cur == LIMIT);
    for (int i = 0; i < 3; i++) {
        char *p = malloc(100 << 20);
        expect(p != NULL);
        p[99 << 20] = 1;
        expect(malloc(500 << 20) == NULL && errno == ENOMEM);
        char *q = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        expect(q != MAP_FAILED);
        fails(ENOMEM, mremap(q, 4096, LIMIT, MREMAP_MAYMOVE));
        // What is replaced is not counted twice.
        expect(mmap(q, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == q);
        must(munmap(q, 4096));
        free(p);
        finish(start(fill, NULL));
    }
    FILE *f = fopen("/proc/self/comm", "r");
    expect(f != NULL);
    fclose(f);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        has_room();
        return 0;
    }
    struct rlimit old, limit;
    must(getrlimit(RLIMIT_AS, &old));
    limit = (struct rlimit){LIMIT, old.rlim_max};
    must(setrlimit(RLIMIT_AS, &limit));
    has_room();
    pid_t pid = must(fork());
    if (pid == 0) {
        has_room();
        execv("/proc/self/exe", (char *[]){argv[0], "again", NULL});
        _exit(GUEST_FAILED);
    }
    int status;
    must(waitpid(pid, &status, 0));
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    // A hard limit can be lowered, and not be gone beyond.
    limit = (struct rlimit){LIMIT, LIMIT};
    must(setrlimit(RLIMIT_AS, &limit));
    limit.rlim_cur = LIMIT + 4096;
    fails(EINVAL, setrlimit(RLIMIT_AS, &limit));
    must(getrlimit(RLIMIT_AS, &limit));
    expect(limit.rlim_cur == LIMIT && limit.rlim_max == LIMIT);
    fails(EFAULT, syscall(SYS_setrlimit, RLIMIT_AS, (void *)8));
    fails(EFAULT, syscall(SYS_getrlimit, RLIMIT_AS, (void *)8));
    say("room for %d MB\n", LIMIT >> 20);
}
