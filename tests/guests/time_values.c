// Every clock, through libc and by system call; time never runs backwards.
// variant: static -static
#include "guest.h"

int main(void) {
    static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_TAI, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        int64_t before = now_ns(clocks[i]);
        struct timespec t, resolution;
        expect(syscall(SYS_clock_gettime, clocks[i], &t) == 0);
        int64_t between = t.tv_sec * 1000000000ll + t.tv_nsec;
        int64_t after = now_ns(clocks[i]);
        if (clocks[i] != CLOCK_REALTIME && clocks[i] != CLOCK_REALTIME_COARSE && clocks[i] != CLOCK_TAI) expect(before <= between && between <= after);
        must(clock_getres(clocks[i], &resolution));
        say("clock %d: %ld %ld %ld, resolution %ld\n", clocks[i], before, between, after, resolution.tv_nsec);
    }
    struct timeval day;
    struct timezone zone;
    must(gettimeofday(&day, &zone));
    say("day %ld.%ld zone %d\n", day.tv_sec, day.tv_usec, zone.tz_minuteswest);
    expect(syscall(SYS_gettimeofday, &day, NULL) == 0);
    say("day %ld.%ld\n", day.tv_sec, day.tv_usec);
    time_t seconds = time(NULL), through = 0;
    expect(time(&through) >= seconds && through >= seconds);
    struct timespec utc;
    expect(timespec_get(&utc, TIME_UTC) == TIME_UTC);
    say("seconds %ld, utc %ld.%ld\n", seconds, utc.tv_sec, utc.tv_nsec);
    uint64_t hash = 0;
    for (int i = 0; i < 10000; i++) hash = mix(hash + now_ns(CLOCK_MONOTONIC));
    say("ten thousand times, hash %lu\n", hash);
}
