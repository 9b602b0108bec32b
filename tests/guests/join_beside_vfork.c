// A thread is joined while it waits for its vfork child, which has the same thread pointer in the same memory, and came to the place of
// a thread that was there before both.
// run:
#include "guest.h"
#include <sys/wait.h>

static tally first_may_end, second_is_there;

static void *first(void *unused) {
    while (!counted(&first_may_end)) sched_yield();
    return unused;
}

static void *second(void *result) {
    count_up(&second_is_there);
    while (counted(&second_is_there) < 2) sched_yield();
    pid_t pid = vfork();
    if (pid == 0) {
        // Longer than it takes to come to the join.
        struct timespec soon = {.tv_nsec = 60000000};
        nanosleep(&soon, NULL);
        _exit(7);
    }
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    return result;
}

int main(void) {
    for (int round = 0; round < 3; round++) {
        pthread_t one = start(first, NULL), other = start(second, (void *)"joined");
        while (!counted(&second_is_there)) sched_yield();
        count_up(&first_may_end);
        finish(one);
        count_up(&second_is_there);
        // The child is there by then, mostly.
        struct timespec moment = {.tv_nsec = 10000000};
        nanosleep(&moment, NULL);
        void *result;
        ok(pthread_join(other, &result));
        say("round %d: %s\n", round, (char *)result);
        count_from_zero(&first_may_end);
        count_from_zero(&second_is_there);
    }
}
