// Signals to groups of processes: kill of a negative id, of 0, killpg; who gets it, who it comes from, and who isn't there.
#include "guest.h"
#include <sys/wait.h>

enum { MEMBERS = 4 };

static int told[2];
static sigset_t set;

// Takes one signal and reports what it says; then another, which ends it.
__attribute__((noreturn)) static void member(int me) {
    siginfo_t info;
    char c = 'r';
    expect(write(told[1], &c, 1) == 1);
    for (int i = 0;; i++) {
        int number = must(sigwaitinfo(&set, &info));
        if (number == SIGTERM) _exit(me + 10);
        expect(info.si_code == SI_USER && info.si_uid == getuid());
        c = (char)('0' + (info.si_pid == getppid()));
        expect(write(told[1], &c, 1) == 1);
    }
}

static int count(char wanted, int many) {
    int found = 0;
    for (int i = 0; i < many; i++) {
        char c;
        expect(read(told[0], &c, 1) == 1);
        found += c == wanted;
    }
    return found;
}

int main(void) {
    must(pipe(told));
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGTERM);
    ok(pthread_sigmask(SIG_BLOCK, &set, NULL));
    // A group of our own, so that kill(0) reaches nobody else.
    must(setpgid(0, 0));
    pid_t group = 0, pids[MEMBERS];
    for (int i = 0; i < MEMBERS; i++) {
        pid_t pid = must(fork());
        if (pid == 0) {
            must(setpgid(0, group));
            member(i);
        }
        if (i == 0) group = pid;
        setpgid(pid, group);
        pids[i] = pid;
    }
    expect(count('r', MEMBERS) == MEMBERS);
    must(kill(-group, SIGUSR1));
    expect(count('1', MEMBERS) == MEMBERS);
    must(killpg(group, SIGUSR2));
    expect(count('1', MEMBERS) == MEMBERS);
    must(kill(-group, 0));
    say("a group of %d\n", MEMBERS);

    // Our own group, us included; the sender is seen by its children, and by a brother.
    pid_t brother = must(fork());
    if (brother == 0) member(MEMBERS);
    expect(count('r', 1) == 1);
    must(kill(0, SIGUSR1));
    siginfo_t info;
    expect(must(sigwaitinfo(&set, &info)) == SIGUSR1 && info.si_pid == getpid());
    expect(count('1', 1) == 1);
    pid_t sender = must(fork());
    if (sender == 0) {
        must(killpg(0, SIGUSR2));
        must(sigwaitinfo(&set, NULL));
        _exit(0);
    }
    expect(must(sigwaitinfo(&set, &info)) == SIGUSR2 && info.si_pid == sender);
    expect(count('0', 1) == 1);
    must(waitpid(sender, NULL, 0));
    say("our own group\n");

    // One member leaves the group; then the rest is ended.
    must(setpgid(pids[3], pids[3]));
    must(kill(-group, SIGTERM));
    for (int i = 0; i < MEMBERS - 1; i++) {
        int status;
        pid_t pid = must(waitpid(-group, &status, 0));
        expect(WIFEXITED(status) && WEXITSTATUS(status) >= 10 && pids[WEXITSTATUS(status) - 10] == pid);
    }
    fails(ECHILD, waitpid(-group, NULL, 0));
    fails(ESRCH, kill(-group, SIGTERM));
    fails(ESRCH, killpg(group, 0));
    must(kill(-pids[3], SIGTERM));
    must(kill(brother, SIGTERM));
    for (int i = 0; i < 2; i++) must(wait(NULL));
    fails(ECHILD, wait(NULL));
    fails(EINVAL, kill(getpid(), 65));
    fails(EINVAL, kill(0, -1));
    fails(EINVAL, killpg(-5, SIGTERM));
    say("done\n");
}
