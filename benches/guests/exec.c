// Starts a program that does nothing again and again, one after the other, and prints the milliseconds that one fork, exec and wait take.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static int start(char *program) {
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv) {
    long rounds = argc > 2 ? atol(argv[2]) : 300;
    char *program = argc > 1 ? argv[1] : "/bin/true";
    double begun = now();
    for (long i = 0; i < rounds; i++) {
        if (!start(program)) {
            return 1;
        }
    }
    printf("%.4f\n", (now() - begun) / rounds);
}
