// A bad pointer in every place of the calls on sockets and queues: EFAULT, and no message is lost.
// variant: companion -DGUEST_COMPANION
// flags: -Wno-nonnull
#include "guest.h"
#include <arpa/inet.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/uio.h>

int main(void) {
    void *bad = (void *)0x123456789000;
    char good[256];
    memset(good, '#', sizeof good);
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair));
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int udp = must(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
    must(bind(udp, (struct sockaddr *)&here, sizeof here));
    socklen_t length = sizeof here, long_enough = sizeof good;
    must(getsockname(udp, (struct sockaddr *)&here, &length));
    fails(EFAULT, syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, bad));
    fails(EFAULT, syscall(SYS_bind, udp, bad, 16));
    fails(EFAULT, syscall(SYS_connect, udp, bad, 16));
    fails(EFAULT, syscall(SYS_getsockname, udp, bad, &length));
    fails(EFAULT, syscall(SYS_getsockname, udp, good, bad));
    fails(EFAULT, syscall(SYS_getpeername, pair[0], bad, &long_enough));
    fails(EFAULT, syscall(SYS_setsockopt, udp, SOL_SOCKET, SO_REUSEADDR, bad, 4));
    fails(EFAULT, syscall(SYS_getsockopt, udp, SOL_SOCKET, SO_REUSEADDR, good, bad));
    fails(EFAULT, syscall(SYS_sendto, pair[0], bad, 5, 0, NULL, 0));
    fails(EFAULT, syscall(SYS_sendto, udp, good, 5, 0, bad, 16));
    fails(EFAULT, syscall(SYS_sendmsg, pair[0], bad, 0));
    struct iovec part = {good, 5}, nowhere = {bad, 5};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    message.msg_name = bad, message.msg_namelen = 16;
    fails(EFAULT, syscall(SYS_sendmsg, udp, &message, 0));
    message = (struct msghdr){.msg_iov = bad, .msg_iovlen = 1};
    fails(EFAULT, syscall(SYS_sendmsg, pair[0], &message, 0));
    message = (struct msghdr){.msg_iov = &nowhere, .msg_iovlen = 1};
    fails(EFAULT, syscall(SYS_sendmsg, pair[0], &message, 0));
    message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = bad, .msg_controllen = 32};
    fails(EFAULT, syscall(SYS_sendmsg, pair[0], &message, 0));
    fails(EAGAIN, recv(pair[1], good, 5, 0));
    // A datagram that can't be delivered stays in the queue, or is gone: each call once.
    expect(send(pair[0], "one", 3, 0) == 3);
    long r = syscall(SYS_recvfrom, pair[1], bad, 5, 0, NULL, NULL);
    expect(r == -1 && errno == EFAULT);
    r = recv(pair[1], good, 5, 0);
    say("after a bad buffer: %s\n", r == 3 ? "still there" : strerrorname_np(errno));
    expect(sendto(udp, "two", 3, 0, (struct sockaddr *)&here, sizeof here) == 3);
    length = sizeof here;
    fails(EFAULT, syscall(SYS_recvfrom, udp, good, 5, 0, bad, &length));
    expect(sendto(udp, "two", 3, 0, (struct sockaddr *)&here, sizeof here) == 3);
    r = syscall(SYS_recvfrom, udp, good, 5, 0, &here, bad);
    expect(r == -1 && errno == EFAULT);
    message = (struct msghdr){.msg_name = bad, .msg_namelen = 16, .msg_iov = &part, .msg_iovlen = 1};
    expect(sendto(udp, "abc", 3, 0, (struct sockaddr *)&here, sizeof here) == 3);
    fails(EFAULT, syscall(SYS_recvmsg, udp, &message, 0));
    fails(EFAULT, syscall(SYS_recvmsg, udp, bad, 0));
    fails(EFAULT, syscall(SYS_recvmmsg, udp, bad, 3, 0, NULL));
    fails(EFAULT, syscall(SYS_recvmmsg, udp, good, 1, 0, bad));
    fails(EFAULT, syscall(SYS_sendmmsg, udp, bad, 3, 0));
    int set = must(semget(IPC_PRIVATE, 1, 0600)), queue = must(msgget(IPC_PRIVATE, 0600));
    fails(EFAULT, syscall(SYS_semop, set, bad, 1));
    fails(EFAULT, syscall(SYS_semtimedop, set, (struct sembuf[]){{0, 1, 0}}, 1, bad));
    fails(EFAULT, syscall(SYS_semctl, set, 0, IPC_STAT, bad));
    fails(EFAULT, syscall(SYS_semctl, set, 0, SETALL, bad));
    fails(EFAULT, syscall(SYS_msgsnd, queue, bad, 5, 0));
    fails(EFAULT, syscall(SYS_msgctl, queue, IPC_SET, bad));
    struct { long type; char text[8]; } letter = {1, "letter"};
    must(msgsnd(queue, &letter, 8, 0));
    fails(EFAULT, syscall(SYS_msgrcv, queue, bad, 8, 0, 0));
    must(semctl(set, 0, IPC_RMID));
    must(msgctl(queue, IPC_RMID, NULL));
    say("port %d\n", ntohs(here.sin_port));
}
