// A pseudo-terminal: ioctls of many shapes, line discipline, window size.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/ioctl.h>
#include <termios.h>

int main(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0) {
        say("terminal %d, %d\n", -1, 0);
        say("read %d\n", 0);
        return 0;
    }
    must(grantpt(master));
    must(unlockpt(master));
    char name[64];
    ok(ptsname_r(master, name, sizeof name));
    int slave = must(open(name, O_RDWR | O_NOCTTY));
    struct termios settings;
    must(tcgetattr(slave, &settings));
    settings.c_lflag &= ~ECHO;
    must(tcsetattr(slave, TCSANOW, &settings));
    struct winsize size = {.ws_row = 33, .ws_col = 99}, seen;
    must(ioctl(master, TIOCSWINSZ, &size));
    must(ioctl(slave, TIOCGWINSZ, &seen));
    expect(seen.ws_row == 33 && seen.ws_col == 99);
    expect(isatty(slave) && !isatty(must(open("/dev/null", O_RDONLY))));
    expect(write(master, "typed\n", 6) == 6);
    char text[64];
    ssize_t n = must(read(slave, text, sizeof text));
    expect(n == 6 && memcmp(text, "typed\n", 6) == 0);
    expect(write(slave, "shown\n", 6) == 6);
    // The kernel may hand it over in pieces.
    for (n = 0; n < 7;) n += must(read(master, text + n, sizeof text - n));
    expect(n == 7 && memcmp(text, "shown\r\n", 7) == 0);
    int waiting;
    must(ioctl(slave, FIONREAD, &waiting));
    unsigned number;
    must(ioctl(master, TIOCGPTN, &number));
    say("terminal %u, %d\n", number, slave);
    say("read %zd\n", n);
}
