// A thread maps a file shared, which is gone from all descriptors at once, while another thread waits in the kernel: that one has it, too, when it comes back.
#include "guest.h"
#include <sys/wait.h>

static volatile int *shared;
static int go[2];

static void *maps(void *unused) {
    int fd = must(memfd_create("mapped", 0));
    must(ftruncate(fd, 4096));
    shared = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    must(close(fd));
    *shared = 42;
    must(write(go[1], "x", 1));
    return unused;
}

int main(void) {
    for (int i = 0; i < 5; i++) {
        must(pipe(go));
        pid_t pid = must(fork());
        if (pid == 0) {
            char byte;
            must(read(go[0], &byte, 1));
            _exit(3);
        }
        pthread_t thread = start(maps, NULL);
        int status;
        expect(must(waitpid(pid, &status, 0)) == pid && WEXITSTATUS(status) == 3);
        finish(thread);
        expect(*shared == 42);
        must(close(go[0]));
        must(close(go[1]));
    }
    say("all have it\n");
}
