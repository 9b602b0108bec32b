// The number of the processor, however it is asked for: a thread that has chosen one is there, and so are its children, what it becomes, and a thread
// for which another one has chosen.
#include "guest.h"
#include <sys/wait.h>
#include <x86intrin.h>

static cpu_set_t only(int n) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(n, &one);
    return one;
}

static void is_on(int n) {
    unsigned cpu, node, aux;
    cpu_set_t now;
    must(syscall(SYS_getcpu, &cpu, &node, NULL));
    expect(cpu == (unsigned)n);
    expect(sched_getcpu() == n);
    __rdtscp(&aux);
    expect((aux & 0xfff) == (unsigned)n);
    must(sched_getaffinity(0, sizeof now, &now));
    expect(CPU_COUNT(&now) == 1 && CPU_ISSET(n, &now));
    expect(sysconf(_SC_NPROCESSORS_ONLN) >= 1);
}

static tally go, chosen;

static void *other(void *argument) {
    count_up(&go);
    must(sem_wait(&chosen));
    // It is moved at the latest when it runs again.
    is_on((int)(long)argument);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 2) {
        is_on(atoi(argv[2]));
        return 0;
    }
    cpu_set_t all;
    must(sched_getaffinity(0, sizeof all, &all));
    // Nothing chosen: the number is one of those that are allowed.
    unsigned aux;
    expect(CPU_ISSET(sched_getcpu(), &all));
    __rdtscp(&aux);
    expect(CPU_ISSET(aux & 0xfff, &all));
    for (int n = 0; n < CPU_SETSIZE; n++) {
        if (!CPU_ISSET(n, &all)) continue;
        cpu_set_t one = only(n);
        must(sched_setaffinity(0, sizeof one, &one));
        is_on(n);
        pid_t pid = must(fork());
        if (pid == 0) {
            is_on(n);
            char text[16];
            snprintf(text, sizeof text, "%d", n);
            execv("/proc/self/exe", (char *[]){argv[0], "on", text, NULL});
            _exit(GUEST_FAILED);
        }
        int status;
        must(waitpid(pid, &status, 0));
        expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        must(sched_setaffinity(0, sizeof all, &all));
        count_from_zero(&go);
        count_from_zero(&chosen);
        pthread_t thread = start(other, (void *)(long)n);
        must(sem_wait(&go));
        ok(pthread_setaffinity_np(thread, sizeof one, &one));
        cpu_set_t its;
        ok(pthread_getaffinity_np(thread, sizeof its, &its));
        expect(CPU_COUNT(&its) == 1 && CPU_ISSET(n, &its));
        count_up(&chosen);
        finish(thread);
        say("processor %d\n", n);
    }
}
