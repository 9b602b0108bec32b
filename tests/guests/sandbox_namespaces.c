// Namespaces: leaving them, coming back. What a machine refuses is said; the rest must work.
#include "guest.h"
#include <sys/socket.h>
#include <sys/utsname.h>

static bool leave(const char *name, int flags) {
    long r = unshare(flags);
    say("unshare %s: %d\n", name, r == 0 ? 0 : errno);
    return r == 0;
}

int main(void) {
    must(unshare(CLONE_FS));
    must(unshare(CLONE_FILES));
    must(unshare(CLONE_SYSVSEM));
    struct utsname before, after;
    must(uname(&before));
    int home = must(open("/proc/self/ns/uts", O_RDONLY));
    // Without privileges a user namespace gives them.
    if (geteuid() != 0) leave("user", CLONE_NEWUSER);
    if (leave("uts", CLONE_NEWUTS)) {
        must(sethostname("elsewhere", 9));
        must(uname(&after));
        expect(strcmp(after.nodename, "elsewhere") == 0);
        say("setns %d\n", setns(home, CLONE_NEWUTS) == 0 ? 0 : errno);
        must(uname(&after));
        say("host name came back %d\n", strcmp(after.nodename, before.nodename) == 0);
    }
    if (leave("net", CLONE_NEWNET)) {
        int s = must(socket(AF_INET, SOCK_STREAM, 0));
        close(s);
    }
    leave("ipc", CLONE_NEWIPC);
    leave("cgroup", CLONE_NEWCGROUP);
    leave("mount", CLONE_NEWNS);
    fails(EINVAL, unshare(0x1));
    fails(EBADF, setns(-1, 0));
    fails(EINVAL, setns(0, CLONE_NEWUTS));
    // Memory, files and threads go on as before.
    char *p = must(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, must(open("/proc/self/exe", O_RDONLY)), 0));
    expect(p[1] == 'E');
    say("done\n");
}
