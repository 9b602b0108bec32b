// A child is stopped wherever it just is, again and again: nobody else is kept from going on, whatever the child was doing.
#include "guest.h"
#include <sys/wait.h>

// Calls that wait, and changes of the address space.
static void work(void) {
    struct timespec moment = {0, 1};
    for (;;) {
        for (int i = 0; i < 20; i++) {
            void *p = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            must(munmap(p, 4096));
        }
        must(nanosleep(&moment, NULL));
    }
}

// Programs that begin.
static void exec(void) {
    for (;;) {
        pid_t pid = must(fork());
        if (pid == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(GUEST_FAILED);
        }
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid && status == 0);
    }
}

static void go_on(void) {
    void *p = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(munmap(p, 4096));
    pid_t pid = must(fork());
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(GUEST_FAILED);
    }
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && status == 0);
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 25);
    void (*const bodies[])(void) = {work, exec};
    for (int which = 0; which < 2; which++) {
        pid_t pid = must(fork());
        if (pid == 0) {
            must(setpgid(0, 0));
            bodies[which]();
        }
        // Both do it, so that it is done.
        if (setpgid(pid, pid) != 0) expect(errno == EACCES || errno == EPERM);
        for (long i = 0; i < rounds; i++) {
            int status;
            struct timespec moment = {0, (long)(mix(i) % 1000000)};
            must(nanosleep(&moment, NULL));
            must(kill(-pid, SIGSTOP));
            expect(must(waitpid(pid, &status, WUNTRACED)) == pid && WIFSTOPPED(status));
            go_on();
            // Still stopped, as far as anybody can see.
            siginfo_t info = {0};
            expect(waitid(P_PID, pid, &info, WCONTINUED | WEXITED | WNOHANG) == 0 && info.si_pid == 0);
            must(kill(-pid, SIGCONT));
            expect(must(waitpid(pid, &status, WCONTINUED)) == pid && WIFCONTINUED(status));
        }
        must(kill(-pid, SIGKILL));
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid && WIFSIGNALED(status));
        say("stopped %ld times\n", rounds);
    }
}
