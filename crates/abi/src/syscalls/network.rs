//! Calls on sockets. What single options mean is in [`crate::sockopt`].

calls! {
    // The first socket of a family can load a module.
    41 SOCKET socket(domain: one_of(AF), type: flags(SOCK), protocol: int) -> fd: emulate, does(opens socket);
    42 CONNECT connect(sockfd: fd, addr: in(addrlen), addrlen: uint) -> int: emulate, waits(sockfd), restarts, does(notifies sockfd);
    43 ACCEPT accept(sockfd: fd, addr: out([addrlen]), addrlen: inout(4)) -> fd: emulate, waits(sockfd), restarts,
        does(opens accepted sockfd);
    44 SENDTO sendto(
        sockfd: fd, buf: in(len), len: size, flags: flags(MSG), dest_addr: in(addrlen), addrlen: uint,
    ) -> int: emulate, waits(sockfd), restarts, nowait(flags 0x40), does(sends sockfd);
    45 RECVFROM recvfrom(
        sockfd: fd, buf: out(len) wrote(result), len: size, flags: flags(MSG), src_addr: out([addrlen]), addrlen: inout(4),
    ) -> int: emulate, waits(sockfd), restarts, nowait(flags 0x40), does(receives sockfd);
    46 SENDMSG sendmsg(sockfd: fd, msg: msg_in, flags: flags(MSG)) -> int: emulate, waits(sockfd), restarts, nowait(flags 0x40), does(sends sockfd);
    47 RECVMSG recvmsg(sockfd: fd, msg: msg_out, flags: flags(MSG)) -> int: emulate, waits(sockfd), restarts, nowait(flags 0x40),
        does(receives sockfd);
    48 SHUTDOWN shutdown(sockfd: fd, how: one_of(SHUT)) -> int: emulate, prompt, does(notifies sockfd);
    49 BIND bind(sockfd: fd, addr: in(addrlen), addrlen: uint) -> int: emulate;
    50 LISTEN listen(sockfd: fd, backlog: int) -> int: emulate, prompt;
    51 GETSOCKNAME getsockname(sockfd: fd, addr: out([addrlen]), addrlen: inout(4)) -> int: emulate, prompt, asks;
    52 GETPEERNAME getpeername(sockfd: fd, addr: out([addrlen]), addrlen: inout(4)) -> int: emulate, prompt, asks;
    // The numbers are told before the sockets are made, and stay when that fails.
    53 SOCKETPAIR socketpair(domain: one_of(AF), type: flags(SOCK), protocol: int, sv: out(8) always) -> int: emulate,
        does(opens sockets sv);
    54 SETSOCKOPT setsockopt(
        sockfd: fd, level: one_of(SOL), optname: int, optval: in(optlen), optlen: uint,
    ) -> int: emulate, noted(SOCKET_OPTION), does(commands sockfd);
    55 GETSOCKOPT getsockopt(
        sockfd: fd, level: one_of(SOL), optname: int, optval: inout([optlen]), optlen: inout(4) always,
    ) -> int: emulate, does(commands sockfd);
    288 ACCEPT4 accept4(
        sockfd: fd, addr: out([addrlen]), addrlen: inout(4), flags: flags(SOCK),
    ) -> fd: emulate, waits(sockfd), restarts, does(opens accepted sockfd);
    299 RECVMMSG recvmmsg(
        sockfd: fd, msgvec: mmsg_out(vlen), vlen: uint, flags: flags(MSG), timeout: inout(16) always,
    ) -> int: emulate, waits(sockfd), restarts, timeout(timespec timeout), nowait(flags 0x40), does(receives sockfd);
    307 SENDMMSG sendmmsg(
        sockfd: fd, msgvec: mmsg_in(vlen), vlen: uint, flags: flags(MSG),
    ) -> int: emulate, waits(sockfd), restarts, nowait(flags 0x40), does(sends sockfd);
}
