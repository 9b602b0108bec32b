// Descriptors: the lowest free number, dup in all forms, flags, locks, and what fcntl says of them.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

int main(void) {
    int lowest = must(open("/dev/null", O_RDWR));
    int next = must(dup(lowest));
    int third = must(dup(lowest));
    close(next);
    expect(must(dup(third)) == next);
    expect(must(dup2(lowest, 200)) == 200);
    expect(must(dup2(200, 200)) == 200);
    fails(EINVAL, dup3(200, 200, 0));
    expect(must(dup3(lowest, 201, O_CLOEXEC)) == 201);
    expect(must(fcntl(201, F_GETFD)) == FD_CLOEXEC);
    expect(must(fcntl(200, F_GETFD)) == 0);
    must(fcntl(200, F_SETFD, FD_CLOEXEC));
    expect(must(fcntl(lowest, F_DUPFD, 300)) == 300);
    expect(must(fcntl(lowest, F_DUPFD_CLOEXEC, 300)) == 301);
    expect((must(fcntl(lowest, F_GETFL)) & O_ACCMODE) == O_RDWR);
    int ends[2];
    must(pipe2(ends, O_NONBLOCK | O_CLOEXEC));
    expect(must(fcntl(ends[0], F_GETFL)) & O_NONBLOCK);
    must(fcntl(ends[0], F_SETFL, 0));
    expect((must(fcntl(ends[0], F_GETFL)) & O_NONBLOCK) == 0);
    int size = must(fcntl(ends[0], F_GETPIPE_SZ));
    expect(must(fcntl(ends[1], F_SETPIPE_SZ, 4096)) >= 4096);
    expect(write(ends[1], "12345", 5) == 5);
    int waiting = 0;
    must(ioctl(ends[0], FIONREAD, &waiting));
    expect(waiting == 5);
    must(ioctl(ends[0], FIONBIO, &waiting));

    char name[] = "lockXXXXXX";
    int fd = must(mkstemp(name)), other = must(open(name, O_RDWR));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10}, open_lock = lock;
    must(fcntl(fd, F_SETLK, &lock));
    must(fcntl(other, F_GETLK, &lock));
    expect(lock.l_type == F_UNLCK);
    fails(EAGAIN, fcntl(other, F_OFD_SETLK, &open_lock));
    open_lock.l_pid = 0;
    must(fcntl(other, F_OFD_GETLK, &open_lock));
    say("locked by %d\n", open_lock.l_pid);
    expect(open_lock.l_type == F_WRLCK);
    must(flock(fd, LOCK_EX));
    fails(EWOULDBLOCK, flock(other, LOCK_EX | LOCK_NB));
    must(flock(fd, LOCK_UN));
    must(fcntl(fd, F_SETOWN, getpid()));
    expect(must(fcntl(fd, F_GETOWN)) == getpid());
    must(unlink(name));

    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 400;
    must(setrlimit(RLIMIT_NOFILE, &limit));
    fails(EBADF, dup2(0, 400));
    int opened = 0;
    while (open("/dev/null", O_RDONLY) >= 0) opened++;
    expect(errno == EMFILE);
    say("lowest was %d, pipe of %d bytes, %d more until the limit, pid %d\n", lowest, size, opened, getpid());
}
