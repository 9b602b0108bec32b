// A thread waits in a read while another puts something else in the place of its descriptor, or closes it: the read goes on with
// what it began with.
#include "guest.h"
#include <sys/ioctl.h>

static int tube[2], kept;
static _Atomic int begun;

static void *reader(void *unused) {
    (void)unused;
    char text[8];
    begun = 1;
    expect(read(tube[0], text, 8) == 3 && memcmp(text, "old", 3) == 0);
    // The next read is of what is there now.
    ssize_t n = read(tube[0], text, 8);
    return (void *)(n == 3 && memcmp(text, "new", 3) == 0 ? 1l : n == -1 && errno == EBADF ? 2l : 0l);
}

// Asleep in a read of a pipe, as /proc/self/task/N/syscall or the state says; both may be out of reach, so ask for the state only.
static void until_asleep(long tid) {
    char name[64], text[256];
    snprintf(name, sizeof name, "/proc/self/task/%ld/stat", tid);
    for (;;) {
        int fd = must(open(name, O_RDONLY));
        ssize_t n = must(read(fd, text, sizeof text - 1));
        must(close(fd));
        text[n] = 0;
        if (strrchr(text, ')')[2] == 'S') return;
        sched_yield();
    }
}

static long tid_of_reader;
static void *reader_of_known_id(void *unused) {
    __atomic_store_n(&tid_of_reader, gettid_raw(), __ATOMIC_SEQ_CST);
    return reader(unused);
}

static long round_with(bool replace) {
    must(pipe(tube));
    kept = must(dup(tube[0]));
    begun = 0;
    pthread_t thread = start(reader_of_known_id, NULL);
    while (!begun) sched_yield();
    until_asleep(__atomic_load_n(&tid_of_reader, __ATOMIC_SEQ_CST));
    int other[2] = {-1, -1};
    if (replace) {
        must(pipe(other));
        expect(write(other[1], "new", 3) == 3);
        must(dup2(other[0], tube[0]));
    } else {
        must(close(tube[0]));
    }
    expect(write(tube[1], "old", 3) == 3);
    long result = (long)finish(thread);
    int left = 0;
    must(ioctl(kept, FIONREAD, &left));
    expect(left == 0);
    return result;
}

int main(void) {
    expect(round_with(true) == 1);
    expect(round_with(false) == 2);
    say("descriptors %d and %d\n", tube[0], kept);
}
