// The first thread waits for a second one that makes calls: by joining it, by ending the program, by initialising something once, by a semaphore of
// shared memory, or by a thread that gets the second one's place. A replay in which the second one can't go on is
// one in which nobody can.
#include "guest.h"
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t half;
static sem_t *shared;

// getuid is called here only.
static void calls(void) {
    for (int i = 0; i < 40; i++) getuid();
}

static void *works(void *unused) {
    calls();
    return unused;
}

static void *posts_in_the_middle(void *unused) {
    ok(sem_post(&half));
    calls();
    return unused;
}

static void *posts_shared(void *unused) {
    calls();
    ok(sem_post(shared));
    return unused;
}

static void initialises(void) {
    ok(sem_post(&half));
    calls();
}

static void *does_once(void *unused) {
    ok(pthread_once(&once, initialises));
    return unused;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "join";
    ok(sem_init(&half, 0, 0));
    if (!strcmp(how, "join")) {
        finish(start(works, NULL));
    } else if (!strcmp(how, "end")) {
        start(posts_in_the_middle, NULL);
        ok(sem_wait(&half));
        // The other one makes some of its calls meanwhile.
        usleep(20000);
    } else if (!strcmp(how, "once")) {
        pthread_t other = start(does_once, NULL);
        ok(sem_wait(&half));
        ok(pthread_once(&once, initialises));
        finish(other);
    } else if (!strcmp(how, "shared")) {
        shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ok(sem_init(shared, 1, 0));
        pthread_t other = start(posts_shared, NULL);
        ok(sem_wait(shared));
        finish(other);
    } else if (!strcmp(how, "slot")) {
        ok(pthread_detach(start(posts_in_the_middle, NULL)));
        ok(sem_wait(&half));
        usleep(20000);
        finish(start(works, NULL));
    }
    say("done\n");
}
