// close_range closes many descriptors at once, or marks them; the next open gets the lowest number.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif

int main(void) {
    for (int i = 0; i < 20; i++) must(dup(1));
    tell(syscall(SYS_close_range, 10, 15, 0));
    tell(fcntl(10, F_GETFD));
    tell(fcntl(16, F_GETFD));
    tell(syscall(SYS_close_range, 16, 18, CLOSE_RANGE_CLOEXEC));
    tell(fcntl(16, F_GETFD));
    tell(fcntl(19, F_GETFD));
    tell(syscall(SYS_close_range, 5, 4, 0));
    tell(syscall(SYS_close_range, 5, 6, 64));
    tell(dup(1));
    tell(dup(1));
    tell(syscall(SYS_close_range, 3, ~0u, 0));
    tell(fcntl(3, F_GETFD));
    tell(open("/dev/null", O_RDONLY));
}
