// Programs that are executed by a descriptor: fexecve, execveat relative to a directory, a program that exists in memory only, scripts.
// flags: -Wno-nonnull
#include "guest.h"
#include <sys/wait.h>

static int reap(pid_t pid) {
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static char *args[] = {"by descriptor", "again", NULL};
extern char **environ;

static int run_fd(int fd) {
    pid_t pid = must(fork());
    if (pid == 0) {
        fexecve(fd, args, environ);
        _exit(errno == ENOENT ? 101 : 102);
    }
    return reap(pid);
}

static int run_at(int directory, const char *path, int flags) {
    pid_t pid = must(fork());
    if (pid == 0) {
        execveat(directory, path, args, environ, flags);
        _exit(errno == ELOOP ? 103 : 104);
    }
    return reap(pid);
}

int main(int argc, char **argv) {
    if (argc > 1) return 40 + argc;
    (void)argv;
    static char self[PATH_MAX];
    self[must(readlink("/proc/self/exe", self, sizeof self - 1))] = 0;
    int fd = must(open(self, O_RDONLY));
    expect(run_fd(fd) == 42);
    int path = must(open(self, O_PATH | O_CLOEXEC));
    expect(run_fd(path) == 42);
    expect(run_at(path, "", AT_EMPTY_PATH) == 42);
    expect(run_at(AT_FDCWD, self, 0) == 42);
    expect(run_at(77, self, AT_SYMLINK_NOFOLLOW) == 42);
    // Relative to a directory.
    char *slash = strrchr(self, '/');
    *slash = 0;
    int directory = must(open(self, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    expect(run_at(directory, slash + 1, 0) == 42);
    *slash = '/';
    say("files: done\n");

    // In memory only: a copy, sealed by being in use.
    int memory = must(memfd_create("program", MFD_CLOEXEC));
    char buffer[65536];
    for (ssize_t n; (n = must(read(fd, buffer, sizeof buffer))) > 0;) expect(write(memory, buffer, n) == n);
    expect(run_fd(memory) == 42);
    // A script in memory: its interpreter opens /dev/fd/N, so the descriptor has to stay open.
    int script = must(memfd_create("script", 0));
    expect(write(script, "#!/bin/sh\nexit 43\n", 18) == 18);
    expect(run_fd(script) == 43);
    must(fcntl(script, F_SETFD, FD_CLOEXEC));
    expect(run_fd(script) == 101);
    say("memory: done\n");

    char link[] = "/tmp/reprise-link-XXXXXX";
    expect(mkdtemp(link) != NULL);
    must(rmdir(link));
    must(symlink(self, link));
    expect(run_at(AT_FDCWD, link, AT_SYMLINK_NOFOLLOW) == 103);
    expect(run_at(AT_FDCWD, link, 0) == 42);
    must(unlink(link));
    fails(EBADF, execveat(77, "x", args, environ, 0));
    fails(EBADF, execveat(77, "", args, environ, AT_EMPTY_PATH));
    fails(ENOENT, execveat(fd, "", args, environ, 0));
    fails(ENOTDIR, execveat(fd, "x", args, environ, 0));
    fails(EINVAL, execveat(directory, "x", args, environ, 0x4000000));
    fails(EACCES, execveat(directory, "", args, environ, AT_EMPTY_PATH));
    fails(EINVAL, fexecve(-1, args, environ));
    fails(EINVAL, fexecve(fd, NULL, environ));
    int null = must(open("/dev/null", O_RDONLY));
    fails(EACCES, fexecve(null, args, environ));
    say("errors: done\n");
}
