//! Calls on clocks and timers.

calls! {
    35 NANOSLEEP nanosleep(duration: in(16), rem: out(16) always) -> int: emulate, waits, eintr, local, does(sleeps);
    36 GETITIMER getitimer(which: one_of(ITIMER), curr_value: out(32)) -> int: emulate, prompt, asks, does(tells interval timer);
    37 ALARM alarm(seconds: uint) -> int: emulate, prompt, does(sets interval timer);
    38 SETITIMER setitimer(which: one_of(ITIMER), new_value: in(32), old_value: out(32)) -> int: emulate, prompt, does(sets interval timer);
    96 GETTIMEOFDAY gettimeofday(tv: out(16), tz: out(8)) -> int: emulate, prompt, local, vdso, does(tells TimeOfDay);
    159 ADJTIMEX adjtimex(buf: inout(208) always) -> int: emulate, prompt;
    164 SETTIMEOFDAY settimeofday(tv: in(16), tz: in(8)) -> int: emulate, prompt;
    201 TIME time(tloc: out(8)) -> int: emulate, prompt, local, vdso, does(tells Seconds);
    222 TIMER_CREATE timer_create(clockid: one_of(CLOCK), sevp: in(64), timerid: out(4)) -> int: emulate, prompt, does(makes timer);
    223 TIMER_SETTIME timer_settime(
        timerid: int, flags: flags(TIMER), new_value: in(32), old_value: out(32),
    ) -> int: emulate, prompt, does(sets timer);
    224 TIMER_GETTIME timer_gettime(timerid: int, curr_value: out(32)) -> int: emulate, prompt, asks, does(tells timer);
    225 TIMER_GETOVERRUN timer_getoverrun(timerid: int) -> int: emulate, prompt, asks, does(tells timer);
    226 TIMER_DELETE timer_delete(timerid: int) -> int: emulate, prompt, does(deletes timer);
    227 CLOCK_SETTIME clock_settime(clockid: one_of(CLOCK), tp: in(16)) -> int: emulate, prompt;
    228 CLOCK_GETTIME clock_gettime(clockid: one_of(CLOCK), tp: out(16)) -> int: emulate, prompt, local, vdso, does(tells Clock);
    229 CLOCK_GETRES clock_getres(clockid: one_of(CLOCK), res: out(16)) -> int: emulate, prompt, local, vdso, does(tells Resolution);
    230 CLOCK_NANOSLEEP clock_nanosleep(
        clockid: one_of(CLOCK), flags: flags(TIMER), request: in(16), remain: out(16) always,
    ) -> int: emulate, waits, eintr, local, does(sleeps);
    283 TIMERFD_CREATE timerfd_create(clockid: one_of(CLOCK), flags: flags(DESCRIPTOR)) -> fd: emulate, prompt, does(opens timer);
    286 TIMERFD_SETTIME timerfd_settime(
        fd: fd, flags: flags(TIMERFD), new_value: in(32), old_value: out(32),
    ) -> int: emulate, prompt, does(sets timer of fd);
    287 TIMERFD_GETTIME timerfd_gettime(fd: fd, curr_value: out(32)) -> int: emulate, prompt, asks;
    305 CLOCK_ADJTIME clock_adjtime(clockid: one_of(CLOCK), buf: inout(208)) -> int: emulate, prompt;
}
