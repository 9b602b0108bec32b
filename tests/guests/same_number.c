// A descriptor that is read from becomes another file under the same number, at just the position at which the next read of the first one would have begun: by the thread
// itself, by another thread, by a process that shares the table of descriptors but no memory, and by a thread that takes its table apart.
// Usage: same_number FILE OTHER; both have the same length.
// run: /bin/bash /usr/bin/python3
#include "guest.h"
#include <sys/socket.h>
#include <sys/wait.h>

#define PIECE 16384
#define BEFORE 12
#define AFTER 12

static const char *name, *other;
static unsigned char piece[PIECE];
static int fd;

// The next pieces of the descriptor, as a sum.
static uint64_t pieces(int from, int count) {
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) {
        ssize_t n = must(read(from, piece, PIECE));
        sum = mix(sum + hash_bytes(piece, n));
    }
    return sum;
}

// The other file, where reads of the first one have got to.
static int other_there(void) {
    int there = must(open(other, O_RDONLY));
    must(lseek(there, (off_t)BEFORE * PIECE, SEEK_SET));
    return there;
}

static void by_dup2(void) {
    int there = other_there();
    must(dup2(there, fd));
    must(close(there));
}

static void by_close(void) {
    int there = other_there();
    must(close(fd));
    expect(must(dup(there)) == fd);
    must(close(there));
}

static void by_close_and_open(void) {
    must(close(fd));
    expect(must(open(other, O_RDONLY)) == fd);
    must(lseek(fd, (off_t)BEFORE * PIECE, SEEK_SET));
}

static void by_close_range(void) {
    int there = other_there();
    must(close_range(fd, fd, 0));
    expect(must(fcntl(there, F_DUPFD, 0)) == fd);
    must(close(there));
}

// As a message brings it.
static void by_message(void) {
    int pair[2], there = other_there();
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof there);
    memcpy(CMSG_DATA(c), &there, sizeof there);
    expect(must(sendmsg(pair[0], &m, 0)) == 1);
    must(close(fd));
    expect(must(recvmsg(pair[1], &m, 0)) == 1);
    int got;
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof got);
    expect(got == fd);
    must(close(pair[0]));
    must(close(pair[1]));
    must(close(there));
}

static void *replace(void *unused) {
    (void)unused;
    by_dup2();
    return NULL;
}

static void by_a_thread(void) { finish(start(replace, NULL)); }

// A process with this table, and a copy of this memory.
static void by_a_process(void) {
    pid_t child = (pid_t)must(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
    if (child == 0) {
        by_dup2();
        _exit(0);
    }
    int status;
    expect(must(waitpid(child, &status, 0)) == child && status == 0);
}

// A thread with a table of its own reads another file than its process does, under one number.
static void *apart(void *unused) {
    (void)unused;
    must(unshare(CLONE_FILES));
    by_dup2();
    say("apart: %lu\n", pieces(fd, AFTER));
    return NULL;
}

static void by_taking_apart(void) { finish(start(apart, NULL)); }

int main(int argc, char **argv) {
    expect(argc > 2);
    name = argv[1];
    other = argv[2];
    static const struct { const char *name; void (*change)(void); } ways[] = {
        {"nothing", NULL},
        {"dup2", by_dup2},
        {"close", by_close},
        {"close and open", by_close_and_open},
        {"close_range", by_close_range},
        {"message", by_message},
        {"thread", by_a_thread},
        {"process", by_a_process},
        {"apart", by_taking_apart},
    };
    // Once more after all of them: what the last ones did to the table stays.
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            fd = must(open(name, O_RDONLY));
            uint64_t before = pieces(fd, BEFORE);
            if (ways[i].change) ways[i].change();
            say("%s: %lu %lu\n", ways[i].name, before, pieces(fd, AFTER));
            must(close(fd));
        }
    }
    return 0;
}
