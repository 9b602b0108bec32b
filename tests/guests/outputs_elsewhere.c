// What goes to the standard output by another call than write(2), or by a descriptor that came from somewhere else than dup(2).
// The first argument says by which; with a second one another thread waits meanwhile, so that calls don't get the program's own memory.
// run: sendfile
// run: sendfile threads
// run: pseudo threads
// run: copy
// run: clone
// run: clone threads
// run: splice threads
// run: tee
// run: tee threads
// run: socket threads
// run: partial
// run: failing
// run: batches
// run: passed
// run: passed threads
// run: fetched
// run: reopened
// run: high
// run: high threads
// run: unshared
// run: shared
// run: child
// run: vforked
#include "guest.h"
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { LINES = 300, LENGTH = 12 };

static bool is_pipe(int fd) {
    struct stat s;
    must(fstat(fd, &s));
    return S_ISFIFO(s.st_mode);
}

// A file of numbered lines, read from its beginning.
static int source(void) {
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0) fd = must(memfd_create("source", 0));
    for (int i = 0; i < LINES; i++) {
        char line[LENGTH + 1];
        snprintf(line, sizeof line, "line %06d\n", i);
        expect(write(fd, line, LENGTH) == LENGTH);
    }
    must(lseek(fd, 0, SEEK_SET));
    return fd;
}

static void by_sendfile(void) {
    int fd = source();
    for (int left = 100 * LENGTH; left > 0;) left -= must(sendfile(1, fd, 0, left));
    expect(lseek(fd, 0, SEEK_CUR) == 100 * LENGTH);
    off_t at = 200 * LENGTH;
    while (at < 220 * LENGTH) must(sendfile(1, fd, &at, 220 * LENGTH - at));
    expect(lseek(fd, 0, SEEK_CUR) == 100 * LENGTH);
    at = LINES * LENGTH;
    expect(sendfile(1, fd, &at, 10) == 0);
}

// What has no length, and says something else each time.
static void whole(const char *path) {
    int fd = must(open(path, O_RDONLY));
    int n = must(sendfile(1, fd, 0, 1000));
    expect(n > 0);
    expect(lseek(fd, 0, SEEK_CUR) == n);
}

static void from_pseudo_files(void) {
    whole("/proc/uptime");
    whole("/proc/loadavg");
}

// No two runs say lines of one shape: not for the tests of all guests (it has no line above).
// A clone where the file system can't make one, as a program tries it that then copies. The words say what it was told.
static void by_clone(void) {
    int fd = must(memfd_create("source", 0));
    must(write(fd, "cloned?\n", 8));
    struct file_clone_range range = {.src_fd = fd, .src_length = 8};
    bool whole = ioctl(1, FICLONE, fd) == 0, told = errno == EOPNOTSUPP;
    bool part = ioctl(1, FICLONERANGE, &range) == 0;
    told = told && errno == EOPNOTSUPP;
    expect(!whole && !part);
    if (told) fprintf(stderr, "no clones\n");
    must(lseek(fd, 0, SEEK_SET));
    must(sendfile(1, fd, NULL, 8));
    must(close(fd));
}

static void from_random_files(void) {
    whole("/proc/sys/kernel/random/uuid");
    int fd = must(open("/dev/urandom", O_RDONLY));
    expect(sendfile(1, fd, 0, 1000) == 1000);
    say("\n");
}

static void by_copy_file_range(void) {
    // Only to a file; elsewhere the kernel refuses, natively, too.
    int fd = source();
    struct stat s;
    must(fstat(1, &s));
    ssize_t n = copy_file_range(fd, 0, 1, 0, 50 * LENGTH, 0);
    if (!S_ISREG(s.st_mode)) expect(n < 0 && errno == EINVAL);
    else if (must(fcntl(1, F_GETFL)) & O_APPEND) expect(n < 0 && errno == EBADF);
    else expect(n == 50 * LENGTH || (n < 0 && errno == EXDEV));
}

static void by_splice(void) {
    int fd = source(), ends[2];
    must(pipe(ends));
    int n = must(splice(fd, 0, ends[1], 0, 60 * LENGTH, 0));
    for (int left = n; left > 0;) left -= must(splice(ends[0], 0, 1, 0, left, SPLICE_F_MOVE));
    if (is_pipe(1)) {
        off_t at = 10 * LENGTH;
        while (at < 20 * LENGTH) must(splice(fd, &at, 1, 0, 20 * LENGTH - at, 0));
    }
    must(close(ends[1]));
    expect(splice(ends[0], 0, 1, 0, 10, 0) == 0);
}

static void by_tee(void) {
    int ends[2];
    must(pipe(ends));
    expect(write(ends[1], "seen twice\n", 11) == 11);
    if (is_pipe(1)) expect(tee(ends[0], 1, 11, 0) == 11);
    else expect(tee(ends[0], 1, 11, 0) < 0 && errno == EINVAL);
    expect(splice(ends[0], 0, 1, 0, 11, 0) == 11);
    expect(splice(ends[0], 0, 1, 0, 11, SPLICE_F_NONBLOCK) < 0 && errno == EAGAIN);
}

static void from_socket(void) {
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    expect(write(pair[1], "by a socket\n", 12) == 12);
    if (is_pipe(1)) {
        for (int left = 12; left > 0;) left -= must(splice(pair[0], 0, 1, 0, left, 0));
    } else {
        expect(splice(pair[0], 0, 1, 0, 12, 0) < 0 && errno == EINVAL);
    }
}

// More than a pipe holds, to an end that does not wait.
static void in_part(void) {
    int fd = source(), ends[2];
    must(pipe(ends));
    must(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    expect(splice(ends[0], 0, 1, 0, 100, 0) < 0 && errno == EAGAIN);
    must(fcntl(ends[0], F_SETFL, 0));
    for (int k = 0; k < 40; k++) {
        int n = must(splice(fd, 0, ends[1], 0, 7, 0)), m = must(splice(ends[0], 0, 1, 0, 100, 0));
        expect(n == 7 && m == 7);
    }
    // A big one at once: what a call says is what it has moved.
    int big = must(memfd_create("big", 0));
    for (int k = 0; k < 5000; k++) expect(write(big, "0123456789abcdefghijklmnopqrstu\n", 32) == 32);
    must(lseek(big, 0, SEEK_SET));
    long sum = 0;
    for (long n; (n = must(sendfile(1, big, 0, 1 << 30))) > 0;) {
        sum += n;
        expect(lseek(big, 0, SEEK_CUR) == sum);
    }
    expect(sum == 5000 * 32);
}

static void errors(void) {
    int fd = source(), ends[2];
    must(pipe(ends));
    expect(sendfile(1, 99, 0, 10) < 0 && errno == EBADF);
    expect(sendfile(99, fd, 0, 10) < 0 && errno == EBADF);
    expect(sendfile(1, ends[1], 0, 10) < 0 && errno == EBADF);
    expect(splice(99, 0, 1, 0, 10, 0) < 0 && errno == EBADF);
    expect(splice(ends[1], 0, 1, 0, 10, 0) < 0 && errno == EBADF);
    off_t at = -5;
    expect(sendfile(1, fd, &at, 10) < 0 && errno == EINVAL);
    expect(syscall(SYS_sendfile, 1, fd, 1, 10) < 0 && errno == EFAULT);
    expect(tee(fd, 1, 10, 0) < 0 && errno == EINVAL);
    say("all failed\n");
}

// Vectors at a place, and messages to an output that is a socket.
static void by_batches(void) {
    struct iovec v[3] = {{"one ", 4}, {"two ", 4}, {"three\n", 6}};
    if (is_pipe(1)) expect(pwritev(1, v, 3, 0) < 0 && errno == ESPIPE);
    expect(pwritev2(1, v, 3, -1, 0) == 14);
    // Nothing of it is an output, which these have to know.
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = v, .msg_iovlen = 2}}, {.msg_hdr = {.msg_iov = v + 2, .msg_iovlen = 1}}};
    expect(sendmmsg(pair[0], m, 2, 0) == 2);
    expect(send(pair[0], "x", 1, 0) == 1);
}

static void send_descriptor(int to, int fd) {
    char room[CMSG_SPACE(sizeof fd)] = {0}, byte = 0;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    expect(sendmsg(to, &m, 0) == 1);
}

static int receive_descriptor(int from) {
    char room[CMSG_SPACE(sizeof(int))] = {0}, byte;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    expect(recvmsg(from, &m, 0) == 1);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

static void by_message(void) {
    int pair[2], other = must(open("/dev/null", O_WRONLY));
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    send_descriptor(pair[0], 1);
    send_descriptor(pair[0], other);
    int fd = receive_descriptor(pair[1]), another = receive_descriptor(pair[1]);
    expect(write(fd, "by a message\n", 13) == 13);
    expect(write(another, "to nobody\n", 10) == 10);
    must(close(1));
    expect(write(fd, "after the first is closed\n", 26) == 26);
    must(dup2(fd, 1));
}

static void by_pidfd(void) {
    int child = must(fork());
    if (!child) {
        pause();
        _exit(0);
    }
    int pidfd = must(syscall(SYS_pidfd_open, child, 0));
    int fd = syscall(SYS_pidfd_getfd, pidfd, 1, 0);
    if (fd < 0) {
        expect(errno == EPERM);
        fd = must(dup(1));
    }
    expect(write(fd, "by another process's\n", 21) == 21);
    must(kill(child, SIGKILL));
    must(waitpid(child, 0, 0));
}

// A file is opened at its beginning, a pipe at its end: each then writes in its own way, but to the same file.
static void by_name(void) {
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/fd/1", getpid());
    int fd = must(open(name, O_WRONLY | O_APPEND));
    expect(write(fd, "by its name\n", 12) == 12);
    fd = must(open("/proc/thread-self/fd/1", O_WRONLY | O_APPEND));
    expect(write(fd, "by another\n", 11) == 11);
    int copy = must(dup(1));
    snprintf(name, sizeof name, "/dev/fd/%d", copy);
    fd = must(open(name, O_WRONLY | O_APPEND));
    expect(write(fd, "by a third\n", 11) == 11);
    must(lseek(1, 0, SEEK_END) >= 0 || errno == ESPIPE ? 0 : -1);
}

static void by_high_number(void) {
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &limit));
    int fd = fcntl(1, F_DUPFD, 5000);
    if (fd < 0) fd = must(dup(1));
    expect(write(fd, "by a high number\n", 17) == 17);
    struct iovec v[2] = {{"and by ", 7}, {"a vector\n", 9}};
    expect(writev(fd, v, 2) == 16);
}

static int ready[2], done[2];

static void *with_own_table(void *unused) {
    (void)unused;
    char byte;
    must(unshare(CLONE_FILES));
    int null = must(open("/dev/null", O_WRONLY));
    int kept = must(dup(1));
    must(dup2(null, 1));
    expect(write(1, "not shown\n", 10) == 10);
    expect(write(kept, "from a table of its own\n", 24) == 24);
    expect(write(ready[1], "", 1) == 1);
    expect(read(done[0], &byte, 1) == 1);
    return 0;
}

static void by_own_table(void) {
    pthread_t thread;
    char byte;
    must(pipe(ready)), must(pipe(done));
    expect(!pthread_create(&thread, 0, with_own_table, 0));
    expect(read(ready[0], &byte, 1) == 1);
    say("1 is still the output here\n");
    expect(write(done[1], "", 1) == 1);
    expect(!pthread_join(thread, 0));
}

// A process that shares the table, not the memory.
static void by_shared_table(void) {
    int pid = must((int)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
    if (!pid) {
        expect(dup2(1, 77) == 77);
        expect(write(77, "the child's\n", 12) == 12);
        _exit(0);
    }
    must(waitpid(pid, 0, 0));
    expect(write(77, "the parent's\n", 13) == 13);
    must(dup2(must(open("/dev/null", O_WRONLY)), 78));
    expect(write(78, "nobody's\n", 9) == 9);
}

static void by_child(void) {
    int pid = must(fork());
    if (!pid) {
        by_sendfile();
        int fd = must(dup(1));
        must(close(1));
        expect(write(fd, "the child's\n", 12) == 12);
        _exit(0);
    }
    int status;
    must(waitpid(pid, &status, 0));
    expect(status == 0);
    say("the parent's\n");
}

static void by_vfork(void) {
    static int fd;
    fd = must(open("/dev/null", O_WRONLY));
    int pid = vfork();
    if (!pid) {
        // Its table is its own, its memory is not.
        dup2(fd, 1);
        if (write(1, "not shown\n", 10) != 10) _exit(1);
        _exit(0);
    }
    int status;
    must(waitpid(pid, &status, 0));
    expect(status == 0);
    say("the parent's\n");
}

static void *waits(void *end) {
    char byte;
    expect(read(*(int *)end, &byte, 1) == 0);
    return 0;
}

int main(int count, char **args) {
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = {
        {"sendfile", by_sendfile}, {"pseudo", from_pseudo_files}, {"random", from_random_files}, {"copy", by_copy_file_range}, {"clone", by_clone}, {"splice", by_splice}, {"tee", by_tee},
        {"socket", from_socket}, {"partial", in_part}, {"failing", errors}, {"batches", by_batches}, {"passed", by_message},
        {"fetched", by_pidfd}, {"reopened", by_name}, {"high", by_high_number}, {"unshared", by_own_table},
        {"shared", by_shared_table}, {"child", by_child}, {"vforked", by_vfork},
    };
    pthread_t thread;
    int ends[2];
    bool beside = count > 2;
    if (beside) {
        must(pipe(ends));
        expect(!pthread_create(&thread, 0, waits, &ends[0]));
    }
    say("first\n");
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (count > 1 && !strcmp(args[1], ways[i].name)) ways[i].run();
    }
    say("last\n");
    if (beside) {
        must(close(ends[1]));
        expect(!pthread_join(thread, 0));
    }
    return 0;
}
