// Times of files, set by every call: now, not at all, to the nanosecond; what reading, writing and renaming change.
// flags: -Wno-stringop-overflow -Wno-stringop-overread -Wno-nonnull
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/time.h>
#include <utime.h>

static void look(const char *what) {
    struct stat st;
    must(stat("file", &st));
    say("%s: %ld.%09ld %ld.%09ld\n", what, st.st_atim.tv_sec, st.st_atim.tv_nsec, st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

int main(void) {
    int fd = must(creat("file", 0600));
    look("made");
    struct timespec t[2] = {{1000000000, 123456789}, {1100000000, 987654321}};
    tell(utimensat(AT_FDCWD, "file", t, 0));
    look("set");
    t[0].tv_nsec = UTIME_OMIT;
    t[1].tv_sec = 5;
    tell(futimens(fd, t));
    look("one of them");
    t[0].tv_nsec = UTIME_NOW;
    t[1].tv_nsec = UTIME_OMIT;
    tell(futimens(fd, t));
    look("now");
    tell(utime("file", &(struct utimbuf){100, 200}));
    look("in seconds");
    tell(utimes("file", (struct timeval[]){{100, 5}, {200, 7}}));
    look("in microseconds");
    tell(utimensat(AT_FDCWD, "nowhere", t, 0));
    t[0].tv_nsec = 1000000000;
    tell(utimensat(AT_FDCWD, "file", t, 0));
    tell(utimensat(AT_FDCWD, "file", (void *)8, 0));
    tell(utimensat(AT_FDCWD, "file", NULL, 0));
    struct statx x;
    must(statx(AT_FDCWD, "file", 0, STATX_ALL, &x));
    say("statx: mask %d, mode %o, born %d\n", (x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS, x.stx_mode, !!(x.stx_mask & STATX_BTIME));
    must(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &x));
    say("statx: size %llu\n", (unsigned long long)x.stx_size);
    tell(statx(fd, "", 0, STATX_SIZE, &x));
    tell(statx(AT_FDCWD, "file", 0x10000, STATX_SIZE, &x));
    tell(statx(AT_FDCWD, "file", 0, STATX__RESERVED, &x));
}
