// Locks on files: by process, by open file, whole; who is in the way; waiting that a signal or an unlock ends.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/file.h>

static volatile sig_atomic_t count;
static void handler(int number) { (void)number; count++; }

static void lock(const char *what, int fd, int command, short type, long start, long length) {
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    int r = fcntl(fd, command, &l);
    if (r != 0) {
        say("%s: %s\n", what, strerrorname_np(errno));
        return;
    }
    say("%s: type %d, %ld to %ld\n", what, l.l_type, (long)l.l_start, (long)l.l_len);
}

static void *unlocks(void *argument) {
    int fd = (int)(long)argument;
    for (int i = 0; i < 20; i++) sched_yield();
    must(flock(fd, LOCK_UN));
    return NULL;
}

int main(void) {
    int a = must(open("file", O_CREAT | O_RDWR, 0600)), b = must(open("file", O_RDWR)), r = must(open("file", O_RDONLY));
    lock("write", a, F_SETLK, F_WRLCK, 0, 100);
    lock("the same process", b, F_GETLK, F_WRLCK, 0, 100);
    lock("open file", b, F_OFD_SETLK, F_WRLCK, 50, 10);
    lock("open file asks", b, F_OFD_GETLK, F_WRLCK, 200, 10);
    lock("unlock", a, F_SETLK, F_UNLCK, 0, 0);
    lock("open file again", b, F_OFD_SETLK, F_WRLCK, 50, 10);
    struct flock asked = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 100};
    must(fcntl(a, F_OFD_GETLK, &asked));
    say("in the way: %d at %ld, %d\n", asked.l_type, (long)asked.l_start, asked.l_pid);
    lock("in the way", a, F_SETLK, F_RDLCK, 0, 100);
    lock("write on a reader", r, F_SETLK, F_WRLCK, 0, 1);
    lock("nonsense", a, F_SETLK, 99, 0, 1);
    lock("negative", a, F_SETLK, F_RDLCK, -5, 1);
    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGALRM, &action, NULL));
    alarm_every(3000);
    lock("waiting", a, F_SETLKW, F_WRLCK, 0, 100);
    alarm_every(0);
    expect(count > 0);
    tell(flock(a, LOCK_EX));
    tell(flock(b, LOCK_EX | LOCK_NB));
    tell(flock(b, LOCK_SH | LOCK_NB));
    alarm_every(3000);
    tell(flock(b, LOCK_EX));
    alarm_every(0);
    pthread_t thread = start(unlocks, (void *)(long)a);
    tell(flock(b, LOCK_EX));
    finish(thread);
    tell(flock(b, 99));
    tell(lockf(b, F_TLOCK, 10));
}
