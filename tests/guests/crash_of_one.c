// One of many children crashes, and its parent goes on: the outcome of the whole says nothing of it.
// run: 8
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

// A child's work: lines of its own, and turns of the others in between.
static void work(int me, int crashes) {
    for (int i = 0; i < 3; i++) {
        say("child %d line %d\n", me, i);
        burn(100000);
        sched_yield();
    }
    if (crashes) {
        static int *volatile nowhere;
        say("child %d crashes\n", me);
        *nowhere = me;
    }
}

int main(int argc, char **argv) {
    struct rlimit none = {0, 0};
    must(setrlimit(RLIMIT_CORE, &none));
    if (argc > 2) {
        // The program that a child became.
        work(number(argc, argv, 2, 0), 0);
        return 40;
    }
    int children = number(argc, argv, 1, 8), crashed = 0;
    for (int me = 0; me < children; me++) {
        pid_t pid = must(fork());
        if (pid == 0) {
            char name[16];
            snprintf(name, sizeof name, "%d", me);
            if (me == 2) must(execl("/proc/self/exe", "became", "as", name, NULL));
            // A child of the child, in between.
            pid_t below = must(fork());
            if (below == 0) {
                say("grandchild of %d\n", me);
                _exit(me + 20);
            }
            work(me, me == 5);
            int status;
            expect(must(waitpid(below, &status, 0)) == below && WEXITSTATUS(status) == me + 20);
            _exit(me);
        }
        say("made child %d: %d\n", me, pid);
    }
    for (int i = 0; i < children; i++) {
        int status;
        must(wait(&status));
        crashed += WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
    }
    say("%d crashed\n", crashed);
    expect(crashed == 1);
    return 0;
}
