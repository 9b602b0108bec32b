// Job control on a pseudo-terminal, as a shell does it: foreground and background, SIGTTIN, SIGTTOU, ^Z, ^C, ^\, window size, hang-up.
#include "guest.h"
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

static int master;
static volatile sig_atomic_t resized;
static void on_resize(int number) {
    (void)number;
    resized++;
}

static void type(const char *text) { expect(write(master, text, strlen(text)) == (ssize_t)strlen(text)); }

static int reap(pid_t pid) {
    int status;
    expect(must(waitpid(pid, &status, WUNTRACED)) == pid);
    return status;
}

static void stopped_by(pid_t pid, int number) {
    int status = reap(pid);
    expect(WIFSTOPPED(status) && WSTOPSIG(status) == number);
    say("stopped by signal %d\n", number);
}

static void foreground(int terminal, pid_t group) {
    must(tcsetpgrp(terminal, group));
    expect(tcgetpgrp(terminal) == group);
}

// The shell, leader of the session that the terminal controls.
static void shell(int terminal) {
    int ready[2], go[2];
    must(pipe(ready));
    must(pipe(go));
    signal(SIGTTOU, SIG_IGN);
    expect(tcgetpgrp(terminal) == getpid() && must(tcgetsid(terminal)) == getpid());
    // In the background, reading stops a job; in the foreground it goes on.
    pid_t job = must(fork());
    if (job == 0) {
        must(setpgid(0, 0));
        signal(SIGTTOU, SIG_DFL);
        char text[20];
        ssize_t n = must(read(terminal, text, sizeof text));
        expect(n == 6 && !memcmp(text, "hello\n", 6));
        // Then it waits for ^Z and ^C.
        expect(write(ready[1], "x", 1) == 1);
        for (;;) pause();
    }
    setpgid(job, job);
    stopped_by(job, SIGTTIN);
    foreground(terminal, job);
    must(kill(-job, SIGCONT));
    type("hello\n");
    char c;
    expect(read(ready[0], &c, 1) == 1);
    type("\x1a");
    stopped_by(job, SIGTSTP);
    must(kill(-job, SIGCONT));
    type("\3");
    int status = reap(job);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    foreground(terminal, getpid());

    // In the background, changing the terminal stops a job, and writing with TOSTOP.
    struct termios modes;
    must(tcgetattr(terminal, &modes));
    modes.c_lflag |= TOSTOP;
    must(tcsetattr(terminal, TCSANOW, &modes));
    job = must(fork());
    if (job == 0) {
        must(setpgid(0, 0));
        signal(SIGTTOU, SIG_DFL);
        expect(write(terminal, "text", 4) == 4);
        expect(write(ready[1], "x", 1) == 1);
        char c;
        expect(read(go[0], &c, 1) == 1);
        // Again in the background. Who ignores the signals is not stopped: reading fails, writing is let through.
        signal(SIGTTIN, SIG_IGN);
        signal(SIGTTOU, SIG_IGN);
        fails(EIO, read(terminal, &c, 1));
        expect(write(terminal, "more", 4) == 4);
        must(tcsetattr(terminal, TCSANOW, &modes));
        _exit(3);
    }
    setpgid(job, job);
    stopped_by(job, SIGTTOU);
    foreground(terminal, job);
    must(kill(-job, SIGCONT));
    expect(read(ready[0], &c, 1) == 1);
    foreground(terminal, getpid());
    expect(write(go[1], "x", 1) == 1);
    status = reap(job);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 3);

    // Errors.
    fails(EINVAL, tcsetpgrp(terminal, -1));
    fails(ESRCH, tcsetpgrp(terminal, 0x3fffffff));
    fails(ENOTTY, tcgetpgrp(ready[0]));
    // ^\ to a foreground job, whose window changes before.
    job = must(fork());
    if (job == 0) {
        struct sigaction action = {.sa_handler = on_resize};
        sigset_t blocked, before;
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGWINCH);
        ok(pthread_sigmask(SIG_BLOCK, &blocked, &before));
        must(sigaction(SIGWINCH, &action, NULL));
        must(setpgid(0, 0));
        foreground(terminal, getpid());
        expect(write(ready[1], "x", 1) == 1);
        while (!resized) sigsuspend(&before);
        struct winsize size;
        must(ioctl(terminal, TIOCGWINSZ, &size));
        say("window of %d columns\n", size.ws_col);
        expect(write(ready[1], "x", 1) == 1);
        for (;;) pause();
    }
    expect(read(ready[0], &c, 1) == 1);
    must(ioctl(master, TIOCSWINSZ, &(struct winsize){.ws_row = 30, .ws_col = 100}));
    expect(read(ready[0], &c, 1) == 1);
    type("\x1c");
    status = reap(job);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGQUIT);
    say("the shell ends\n");
    _exit(0);
}

int main(void) {
    int terminal;
    must(openpty(&master, &terminal, NULL, NULL, NULL));
    signal(SIGQUIT, SIG_DFL);
    pid_t pid = must(fork());
    if (pid == 0) {
        must(setsid());
        must(ioctl(terminal, TIOCSCTTY, 0));
        shell(terminal);
    }
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    // The other side hangs up: the leader of the session gets SIGHUP, reading finds the end, writing fails.
    int ready[2];
    must(pipe(ready));
    pid = must(fork());
    if (pid == 0) {
        close(master);
        must(setsid());
        must(ioctl(terminal, TIOCSCTTY, 0));
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
        expect(write(ready[1], "x", 1) == 1);
        int number;
        ok(sigwait(&set, &number));
        char c;
        expect(number == SIGHUP && read(terminal, &c, 1) == 0);
        fails(EIO, write(terminal, "x", 1));
        _exit(5);
    }
    close(terminal);
    char c;
    expect(read(ready[0], &c, 1) == 1);
    close(master);
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    say("hung up\n");
}
