// abort: with a handler that returns, one that jumps away, the signal blocked or ignored, from several threads, and by assert.
// run: => SIGABRT
#undef NDEBUG
#include "guest.h"
#include <assert.h>
#include <sys/resource.h>
#include <sys/wait.h>

static sigjmp_buf away;
static int ends[2];

static void returns(int number) {
    (void)number;
    expect(write(ends[1], "h", 1) == 1);
}
static void jumps(int number) {
    (void)number;
    siglongjmp(away, 1);
}
static void *aborts(void *unused) {
    (void)unused;
    abort();
}

static void child(int way) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGABRT);
    switch (way) {
    case 0: abort();
    case 1:
        signal(SIGABRT, returns);
        abort();
    case 2: {
        signal(SIGABRT, jumps);
        // abort holds a lock of its own: it must be free again after each jump.
        volatile int times = 0;
        sigsetjmp(away, 1);
        if (times++ < 3) abort();
        _exit(30);
    }
    case 3:
        signal(SIGABRT, SIG_IGN);
        abort();
    case 4:
        ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
        abort();
    case 5:
        for (int i = 0; i < 3; i++) start(aborts, NULL);
        abort();
    case 6: {
        must(dup2(must(open("/dev/null", O_WRONLY)), 2));
        volatile int zero = 0;
        assert(zero == 1);
        break;
    }
    case 7:
        // Only raised: a handler that returns is all.
        signal(SIGABRT, returns);
        raise(SIGABRT);
        _exit(31);
    }
}

int main(void) {
    must(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));
    for (int way = 0; way < 8; way++) {
        must(pipe(ends));
        pid_t pid = must(fork());
        if (pid == 0) {
            child(way);
            _exit(GUEST_FAILED);
        }
        close(ends[1]);
        char c;
        ssize_t handled = must(read(ends[0], &c, 1));
        close(ends[0]);
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid);
        if (WIFEXITED(status)) {
            expect((way == 2 && WEXITSTATUS(status) == 30) || (way == 7 && WEXITSTATUS(status) == 31));
            say("way %d: exited\n", way);
        } else {
            expect(way != 2 && way != 7 && WTERMSIG(status) == SIGABRT);
            say("way %d: aborted\n", way);
        }
        expect(handled == (way == 1 || way == 7));
    }
    abort();
}
