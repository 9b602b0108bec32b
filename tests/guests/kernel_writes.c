// The kernel writes where a call's result does not say so: in calls that fail, behind what is counted, by a version's size. All of it
// is seen by the program.
// run:
// run: threads
#include "guest.h"
#include <dirent.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { PAGE = 4096 };

// A page behind which there is nothing, filled with a pattern.
static char *lonely_page(void) {
    char *page = must(mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(munmap(page + PAGE, PAGE));
    return memset(page, 0x5a, PAGE);
}

static void show(const char *what, long result, const void *bytes, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum = sum * 31 + ((const unsigned char *)bytes)[i];
    say("%s: %ld, %lu\n", what, result, sum);
}

static void waits(void) {
    siginfo_t info;
    memset(&info, 0x5a, sizeof info);
    long r = syscall(SYS_waitid, P_ALL, 0, &info, WEXITED, 0);
    expect(r < 0 && errno == ECHILD && info.si_signo == 0 && info.si_pid == 0);
    show("waitid without children", r, &info, sizeof info);
    memset(&info, 0x5a, sizeof info);
    expect(syscall(SYS_waitid, P_PIDFD, 999, &info, WEXITED, 0) < 0 && errno == EBADF && info.si_pid == 0);
    char *page = lonely_page();
    expect(syscall(SYS_waitid, P_ALL, 0, page + PAGE - 28, WEXITED, 0) < 0 && errno == ECHILD);
    show("waitid at the end of a page", r, page, PAGE);
}

static void capabilities(void) {
    char *page = lonely_page();
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_1, 0};
    long r = syscall(SYS_capget, &head, page + PAGE - 12);
    expect(r == 0);
    show("capget of the oldest version", r, page, PAGE);
    expect(syscall(SYS_capset, &head, page + PAGE - 12) == 0);
    head.version = 7;
    expect(syscall(SYS_capget, &head, page) < 0 && errno == EINVAL && head.version == _LINUX_CAPABILITY_VERSION_3);
}

static void directories(void) {
    for (int left = 1; left < 200; left += 9) {
        char *page = lonely_page();
        int fd = must(open("/proc/self", O_RDONLY | O_DIRECTORY));
        long r = syscall(SYS_getdents64, fd, page + PAGE - left, PAGE);
        // What fills up the last entry is counted, not written.
        expect(r < left + 8);
        show("getdents64", r, page, PAGE);
        must(close(fd));
        must(munmap(page, PAGE));
    }
}

static void pieces_of_pipes(void) {
    char *page = lonely_page();
    int ends[2];
    must(pipe(ends));
    // Two pieces: they are not joined, since the second one does not fit into the page of the first.
    static char first[3000], second[3000];
    memset(first, 1, sizeof first), memset(second, 2, sizeof second);
    expect(write(ends[1], first, sizeof first) == sizeof first && write(ends[1], second, sizeof second) == sizeof second);
    long r = read(ends[0], page, 2 * PAGE);
    expect(r >= 3000 && r <= PAGE);
    show("read from a pipe", r, page, PAGE);
    char *another = lonely_page();
    struct iovec v[2] = {{page, 10}, {another + PAGE - 20, 100}};
    r = readv(ends[0], v, 2);
    show("readv from a pipe", r, page, PAGE);
    show("its second part", r, another, PAGE);
}

static void messages(void) {
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair));
    for (int i = 0; i < 6; i++) expect(write(pair[1], "a message of some length", 24) == 24);
    char *page = lonely_page(), *another = lonely_page();
    struct iovec v[2] = {{page, 4}, {another + PAGE - 8, 100}};
    long r = readv(pair[0], v, 2);
    expect(r < 0 && errno == EFAULT);
    show("readv of a message", r, page, 16);
    show("its second part", r, another, PAGE);
    memset(page, 0x5a, PAGE), memset(another, 0x5a, PAGE);
    struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
    r = recvmsg(pair[0], &m, 0);
    expect(r < 0 && errno == EFAULT);
    show("recvmsg", r, page, 16);
    show("its second part", r, another, PAGE);
    memset(page, 0x5a, PAGE), memset(another, 0x5a, PAGE);
    struct mmsghdr both[2] = {{.msg_hdr = {.msg_iov = v, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = v, .msg_iovlen = 2}}};
    r = recvmmsg(pair[0], both, 2, 0, 0);
    expect(r == 1);
    show("recvmmsg", r, page, 16);
    show("the one that is not counted", r, another, PAGE);
    memset(page, 0x5a, PAGE);
    struct sockaddr_storage from;
    socklen_t wrong = -1;
    r = recvfrom(pair[0], page, 1000, 0, (void *)&from, &wrong);
    show("recvfrom with a wrong length of the name", r, page, PAGE);
    memset(page, 0x5a, PAGE);
    r = syscall(SYS_recvfrom, pair[0], page, 1000, 0, &from, 8L);
    show("recvfrom with a bad pointer", r, page, PAGE);
}

static void counters(void) {
    char *page = lonely_page();
    int epoll = must(epoll_create1(0)), ends[2];
    for (int i = 0; i < 3; i++) {
        must(pipe(ends));
        struct epoll_event e = {EPOLLIN, {.u64 = 0x1122334455667788}};
        must(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &e));
        expect(write(ends[1], "x", 1) == 1);
    }
    long r = epoll_wait(epoll, (void *)(page + PAGE - 18), 3, 0);
    show("epoll_wait", r, page, PAGE);
    char *maps = must(mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    must(munmap(maps + 3 * PAGE, PAGE));
    char pages[4] = {9, 9, 9, 9};
    r = syscall(SYS_mincore, maps, 4 * PAGE, pages);
    expect(r < 0 && errno == ENOMEM);
    show("mincore with a hole", r, pages, sizeof pages);
    struct timex t;
    memset(&t, 0, sizeof t);
    t.modes = 0x7fff0000;
    r = syscall(SYS_adjtimex, &t);
    say("adjtimex: %ld\n", r < 0 ? -1L : 0L);
}

static void handles(void) {
    struct {
        struct file_handle head;
        char room[128];
    } handle;
    memset(&handle, 0x5a, sizeof handle);
    handle.head.handle_bytes = 0;
    long mount[2] = {0x5a5a5a5a5a5a5a5a, 0x5a5a5a5a5a5a5a5a};
    long r = syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &handle, mount, 0);
    if (r < 0 && errno == EOVERFLOW) expect((int)mount[0] != 0x5a5a5a5a);
    show("name_to_handle_at", r, mount, sizeof mount);
    int pair[2], groups[1];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    socklen_t length = 0;
    enum { PEER_GROUPS = 59 };
    r = getsockopt(pair[0], SOL_SOCKET, PEER_GROUPS, groups, &length);
    show("getsockopt with too little room", r, &length, sizeof length);
}

// What is refused is refused of descriptors that are there.
static void refusals(void) {
    expect(ioctl(-1, PERF_EVENT_IOC_ENABLE, 0) < 0 && errno == EBADF);
    expect(ioctl(0, PERF_EVENT_IOC_ENABLE, 0) < 0 && errno == ENOTTY);
    int path = must(open("/", O_PATH));
    expect(ioctl(path, PERF_EVENT_IOC_ENABLE, 0) < 0 && errno == EBADF);
    int one = 1, ends[2];
    must(pipe(ends));
    enum { ZERO_COPY = 60 };
    expect(setsockopt(-1, SOL_SOCKET, ZERO_COPY, &one, sizeof one) < 0 && errno == EBADF);
    expect(setsockopt(ends[0], SOL_SOCKET, ZERO_COPY, &one, sizeof one) < 0 && errno == ENOTSOCK);
}

static void *waits_for_end(void *end) {
    char byte;
    expect(read(*(int *)end, &byte, 1) == 0);
    return 0;
}

int main(int count, char **args) {
    pthread_t thread;
    int ends[2];
    bool beside = count > 1 && !strcmp(args[1], "threads");
    if (beside) {
        must(pipe(ends));
        expect(!pthread_create(&thread, 0, waits_for_end, &ends[0]));
    }
    waits();
    capabilities();
    directories();
    pieces_of_pipes();
    messages();
    counters();
    handles();
    refusals();
    if (beside) {
        must(close(ends[1]));
        expect(!pthread_join(thread, 0));
    }
    return 0;
}
