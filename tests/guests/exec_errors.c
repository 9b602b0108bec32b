// Programs that can't be executed: too many arguments, no format, no permission, busy, interpreters of interpreters; and what execvp
// makes of a text without a first line.
// flags: -Wno-stringop-overread
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

static char directory[] = "/tmp/reprise-exec-XXXXXX";
static char self[PATH_MAX];

static void file(const char *name, const char *text, mode_t mode) {
    int fd = must(open(name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0700));
    expect(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    must(fchmod(fd, mode));
    close(fd);
}

// Runs a program in a child; its status.
static int status_of(const char *path, char **args) {
    fflush(stdout);
    pid_t pid = must(fork());
    if (pid == 0) {
        execv(path, args);
        _exit(errno == ENOENT ? 101 : errno == ELOOP ? 102 : 103);
    }
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "counts")) return argc;
    self[must(readlink("/proc/self/exe", self, sizeof self - 1))] = 0;
    expect(mkdtemp(directory) != NULL);
    must(chdir(directory));
    char *none[] = {"x", NULL};

    // Arguments: one string of more than 128 KiB, and more in all than the limit.
    size_t large = 32 * 4096;
    char *string = malloc(large + 1);
    memset(string, 'a', large);
    string[large] = 0;
    char *args[] = {"x", "counts", string, NULL};
    fails(E2BIG, execv(self, args));
    fails(E2BIG, execve(self, none, &args[2]));
    string[large - 1] = 0;
    expect(status_of(self, args) == 3);
    enum { MANY = 30000 };
    char **many = calloc(MANY + 1, sizeof *many);
    for (int i = 0; i < MANY; i++) many[i] = i == 1 ? "counts" : "a word of arguments that takes some room";
    struct rlimit before, tight = {512 * 1024, RLIM_INFINITY};
    must(getrlimit(RLIMIT_STACK, &before));
    tight.rlim_max = before.rlim_max;
    must(setrlimit(RLIMIT_STACK, &tight));
    fails(E2BIG, execv(self, many));
    must(setrlimit(RLIMIT_STACK, &before));
    expect(status_of(self, many) == (MANY & 0xff));
    say("too many arguments: done\n");

    // Formats and permissions.
    file("empty", "", 0700);
    fails(ENOEXEC, execv("empty", none));
    file("words", "exit 33\n", 0700);
    fails(ENOEXEC, execv("words", none));
    file("short", "\177ELF", 0700);
    fails(ENOEXEC, execv("short", none));
    file("plain", "#!/bin/sh\n", 0600);
    fails(EACCES, execv("plain", none));
    fails(EACCES, execv(".", none));
    fails(EACCES, execv("/", none));
    fails(ENOTDIR, execv("plain/x", none));
    fails(ENOENT, execv("", none));
    fails(ENOENT, execv("missing", none));
    must(symlink("loop", "loop"));
    fails(ELOOP, execv("loop", none));
    must(symlink("missing", "dangling"));
    fails(ENOENT, execv("dangling", none));
    char *name = malloc(5000);
    memset(name, 'n', 4999);
    name[4999] = 0;
    fails(ENAMETOOLONG, execv(name, none));
    name[300] = 0;
    fails(ENAMETOOLONG, execv(name, none));
    fails(EFAULT, execv(self, (char **)8));
    args[1] = (char *)8;
    fails(EFAULT, execv(self, args));
    // Somebody has it open for writing.
    file("busy", "#!/bin/sh\nexit 34\n", 0700);
    int fd = must(open("busy", O_WRONLY));
    fails(ETXTBSY, execv("busy", none));
    close(fd);
    expect(status_of("busy", none) == 34);
    say("formats and permissions: done\n");

    // Interpreters.
    file("nowhere", "#!/nowhere/at/all\n", 0700);
    fails(ENOENT, execv("nowhere", none));
    file("folder", "#!/tmp\n", 0700);
    fails(EACCES, execv("folder", none));
    file("nothing", "#!\n", 0700);
    fails(ENOEXEC, execv("nothing", none));
    file("blank", "#!   \nexit 1\n", 0700);
    fails(ENOEXEC, execv("blank", none));
    file("itself", "#!itself\n", 0700);
    fails(ELOOP, execv("itself", none));
    char text[2 * PATH_MAX];
    snprintf(text, sizeof text, "#! %s  counts\n", self);
    file("level1", text, 0700);
    for (int i = 2; i <= 6; i++) {
        char next[20];
        snprintf(next, sizeof next, "level%d", i);
        snprintf(text, sizeof text, "#!%s/level%d\n", directory, i - 1);
        file(next, text, 0700);
    }
    char *two[] = {"lost", "more", NULL};
    // Each level puts its own path before what comes: self counts /…/level1 … and "more".
    for (int i = 1; i <= 5; i++) {
        char next[20];
        snprintf(next, sizeof next, "level%d", i);
        expect(status_of(next, two) == 3 + i);
    }
    fails(ELOOP, execv("level6", two));
    say("interpreters: done\n");

    // A text without a first line: execvp gives it to the shell.
    pid_t pid = must(fork());
    if (pid == 0) {
        execlp("./words", "words", NULL);
        _exit(GUEST_FAILED);
    }
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 33);
    // A search that finds only what may not be run says so.
    setenv("PATH", directory, 1);
    fails(EACCES, execlp("plain", "x", NULL));
    fails(ENOENT, execlp("missing", "x", NULL));
    say("searches: done\n");
    for (const char *const *f = (const char *const[]){"empty", "words", "short", "plain", "loop", "dangling", "busy", "nowhere", "folder", "nothing",
                                                      "blank", "itself", "level1", "level2", "level3", "level4", "level5", "level6", NULL};
         *f; f++)
        must(unlink(*f));
    must(rmdir(directory));
}
