// Files of /proc that a process writes to change itself: name, limits of memory use, core dumps; and those that say no.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/prctl.h>

static char text[256];

static const char *get(const char *name) {
    int fd = must(open(name, O_RDONLY));
    ssize_t n = must(read(fd, text, sizeof text - 1));
    text[n] = 0;
    must(close(fd));
    return text;
}

static int set(const char *name, const char *value) {
    int fd = open(name, O_WRONLY);
    if (fd < 0) return errno;
    int error = write(fd, value, strlen(value)) == (ssize_t)strlen(value) ? 0 : errno;
    must(close(fd));
    return error;
}

int main(void) {
    expect(set("/proc/self/comm", "another name of many letters") == 0);
    expect(strcmp(get("/proc/self/comm"), "another name of\n") == 0);
    char name[16];
    must(prctl(PR_GET_NAME, name));
    expect(strcmp(name, "another name of") == 0);
    must(prctl(PR_SET_NAME, "third"));
    expect(strcmp(get("/proc/thread-self/comm"), "third\n") == 0);
    long before = strtol(get("/proc/self/oom_score_adj"), NULL, 10);
    expect(set("/proc/self/oom_score_adj", "500") == 0 && strcmp(get("/proc/self/oom_score_adj"), "500\n") == 0);
    expect(set("/proc/self/oom_score_adj", "5000") == EINVAL && set("/proc/self/oom_score_adj", "words") == EINVAL);
    expect(set("/proc/self/coredump_filter", "0x11") == 0 && strtol(get("/proc/self/coredump_filter"), NULL, 16) == 0x11);
    int slack = set("/proc/self/timerslack_ns", "70000");
    expect(slack == 0 || slack == EPERM || slack == ENOENT);
    if (slack == 0) expect(strcmp(get("/proc/self/timerslack_ns"), "70000\n") == 0 && prctl(PR_GET_TIMERSLACK) == 70000);
    expect(set("/proc/self/clear_refs", "1") == 0 && set("/proc/self/clear_refs", "99") == EINVAL);
    expect(set("/proc/self/stat", "x") == EACCES || errno == EIO || errno == EINVAL);
    int stat = open("/proc/self/status", O_WRONLY);
    say("status for writing: %s\n", stat >= 0 ? "opened" : strerrorname_np(errno));
    if (stat >= 0) say("written: %s\n", write(stat, "x", 1) == 1 ? "yes" : strerrorname_np(errno));
    int autogroup = set("/proc/self/autogroup", "0");
    say("autogroup %d\n", autogroup);
    // A file that is made anew by each reading from its beginning.
    int fd = must(open("/proc/self/comm", O_RDWR));
    expect(read(fd, text, 3) == 3 && memcmp(text, "thi", 3) == 0);
    expect(lseek(fd, 0, SEEK_SET) == 0 && write(fd, "new", 3) == 3 && pread(fd, text, 16, 0) == 4 && memcmp(text, "new\n", 4) == 0);
    expect(read(fd, text, 16) >= 0);
    fails(EINVAL, lseek(fd, -1, SEEK_SET));
    say("adjusted from %ld\n", before);
}
