// A process that does little until it is ended: a thread that waits, and one that looks up every tenth of a second.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *wait_for_ever(void *unused) {
    pause();
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_ever, NULL);
    puts("ready");
    fflush(stdout);
    for (;;) usleep(100000);
}
