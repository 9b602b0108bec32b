// The ways to end a process: exit, _exit, quick_exit, a return, the last thread; what each runs of handlers, and whose buffers it writes.
#include "guest.h"
#include <sys/wait.h>

static int ends[2];
static void tell_parent(const char *text) { expect(write(ends[1], text, strlen(text)) == (ssize_t)strlen(text)); }
static void at_exit_1(void) { tell_parent("exit1 "); }
static void at_exit_2(void) { tell_parent("exit2 "); }
static void at_quick_1(void) { tell_parent("quick1 "); }
static void at_quick_2(void) { tell_parent("quick2 "); }
static void registers_more(void) {
    tell_parent("more ");
    atexit(at_exit_2);
}

static void *exits(void *p) {
    exit((int)(intptr_t)p);
}
static void *last(void *unused) {
    tell_parent("last ");
    return unused;
}

static void child(int way) {
    at_quick_exit(at_quick_1);
    at_quick_exit(at_quick_2);
    atexit(at_exit_1);
    atexit(registers_more);
    // Stays in the buffer until stdio is flushed.
    FILE *file = fdopen(ends[1], "w");
    fputs("buffered ", file);
    switch (way) {
    case 0: exit(20);
    case 1: _exit(21);
    case 2: quick_exit(22);
    case 3: _Exit(23);
    case 4: start(exits, (void *)24); for (;;) pause();
    case 5:
        start(last, NULL);
        pthread_exit((void *)99);
    case 6: {
        // A child made with text in the buffer: both write it when they exit.
        pid_t pid = must(fork());
        if (pid == 0) exit(1);
        must(waitpid(pid, NULL, 0));
        exit(26);
    }
    case 7: syscall(SYS_exit_group, 0x1ff);
    }
}

int main(void) {
    static const char *const wanted[] = {
        "more exit2 exit1 buffered ", "", "quick2 quick1 ", "", "more exit2 exit1 buffered ",
        "last more exit2 exit1 buffered ", "more exit2 exit1 buffered more exit2 exit1 buffered ", "",
    };
    static const int status_wanted[] = {20, 21, 22, 23, 24, 0, 26, 255};
    for (int way = 0; way < 8; way++) {
        must(pipe(ends));
        pid_t pid = must(fork());
        if (pid == 0) {
            close(ends[0]);
            child(way);
            _exit(GUEST_FAILED);
        }
        close(ends[1]);
        char text[200];
        size_t length = 0;
        for (ssize_t n; (n = must(read(ends[0], text + length, sizeof text - 1 - length))) > 0;) length += n;
        text[length] = 0;
        close(ends[0]);
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status));
        say("way %d: %d, %s\n", way, WEXITSTATUS(status), text);
        expect(WEXITSTATUS(status) == status_wanted[way] && !strcmp(text, wanted[way]));
    }
}
