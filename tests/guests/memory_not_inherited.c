// What a child gets of its parent's memory: not what is DONTFORK, zeros of what is WIPEONFORK, and the rest as it was.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/wait.h>

enum { PAGE = 4096 };

int main(void) {
    char *p = (char *)must(mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    char *shared = (char *)must(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int i = 0; i < 6; i++) p[i * PAGE] = (char)('a' + i);
    strcpy(shared, "shared");
    must(madvise(p + PAGE, PAGE, MADV_DONTFORK));
    must(madvise(p + 2 * PAGE, PAGE, MADV_WIPEONFORK));
    must(madvise(p + 3 * PAGE, 2 * PAGE, MADV_WIPEONFORK));
    must(madvise(p + 4 * PAGE, PAGE, MADV_KEEPONFORK));
    must(madvise(shared + PAGE, PAGE, MADV_DONTFORK));
    int tube[2];
    must(pipe(tube));
    for (int round = 0; round < 2; round++) {
        pid_t child = must(fork());
        if (child == 0) {
            expect(p[0] == 'a' && p[4 * PAGE] == 'e' && p[5 * PAGE] == 'f');
            expect(p[2 * PAGE] == 0 && p[3 * PAGE] == 0);
            unsigned char there;
            fails(EFAULT, write(tube[1], p + PAGE, 1));
            fails(ENOMEM, mincore(p + PAGE, PAGE, &there));
            fails(EFAULT, write(tube[1], shared + PAGE, 1));
            expect(strcmp(shared, round ? "seen" : "shared") == 0);
            strcpy(shared, "seen");
            // The place is free for something else.
            char *q = (char *)must(mmap(p + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
            expect(q == p + PAGE && q[0] == 0);
            p[2 * PAGE] = 'w';
            // Wiping is inherited as well.
            pid_t grandchild = must(fork());
            if (grandchild == 0) {
                expect(p[2 * PAGE] == 0 && p[PAGE] == 0 && p[0] == 'a');
                _exit(3);
            }
            int status;
            expect(waitpid(grandchild, &status, 0) == grandchild && WEXITSTATUS(status) == 3 && p[2 * PAGE] == 'w');
            _exit(4);
        }
        int status;
        expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 4);
        expect(p[PAGE] == 'b' && p[2 * PAGE] == 'c' && p[3 * PAGE] == 'd' && strcmp(shared, "seen") == 0);
    }
    // Once more without.
    must(madvise(p + PAGE, PAGE, MADV_DOFORK));
    pid_t child = must(fork());
    if (child == 0) _exit(p[PAGE] == 'b' ? 5 : 6);
    int status;
    expect(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
    say("at 0x%lx\n", (unsigned long)p);
}
