// mlockall: what the program has is locked and filled, what it maps later as well, and no more than that.
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

// A line of /proc/self/status, in kB.
static long status(const char *name) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long value = -1;
    expect(f != NULL);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name))) value = atol(line + strlen(name) + 1);
    fclose(f);
    return value;
}

enum { LEN = 4 << 20 };

static bool is_filled(const char *p) {
    static unsigned char pages[LEN / 4096];
    must(mincore((void *)p, LEN, pages));
    for (size_t i = 0; i < sizeof pages; i++)
        if (!(pages[i] & 1)) return false;
    return true;
}

static char *map(void) {
    return must(mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

int main(void) {
    fails(EINVAL, mlockall(0));
    fails(EINVAL, mlockall(MCL_ONFAULT));
    fails(EINVAL, mlockall(64));
    char *before = map();
    // It can't be filled, and doesn't matter.
    must(mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(mlockall(MCL_CURRENT));
    expect(is_filled(before));
    long locked = status("VmLck");
    expect(locked >= LEN / 1024 && locked < 64 << 10);
    char *unlocked = map();
    expect(!is_filled(unlocked));
    must(mlockall(MCL_CURRENT | MCL_FUTURE));
    char *after = map();
    expect(is_filled(unlocked) && is_filled(after));
    // Locks aren't inherited.
    pid_t pid = must(fork());
    if (pid == 0) {
        char *own = map();
        _exit(is_filled(own) || status("VmLck") != 0);
    }
    int end;
    must(waitpid(pid, &end, 0));
    expect(end == 0);
    must(munlockall());
    expect(status("VmLck") == 0);
    expect(!is_filled(map()));
    // The limit is that of what the program has.
    struct rlimit none = {0, 0};
    must(mlockall(MCL_FUTURE | MCL_ONFAULT));
    expect(!is_filled(map()));
    must(munlockall());
    must(setrlimit(RLIMIT_MEMLOCK, &none));
    say("locked\n");
}
