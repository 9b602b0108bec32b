// Names that are no UTF-8: of the program, a thread, a mapped file, the directory, files that are read; children that are made by such a program.
#include "guest.h"
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static const char *file = "f\xfcr \xff\xfe.txt";

static void *named(void *unused) {
    (void)unused;
    must(prctl(PR_SET_NAME, "w\xe9rk\xff", 0, 0, 0));
    char name[16] = "";
    must(prctl(PR_GET_NAME, name, 0, 0, 0));
    say("a thread is called %lu\n", hash_bytes(name, strlen(name)) % 1000);
    int fd = must(open(file, O_RDONLY));
    char *text = (char *)must(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
    say("mapped: %.5s\n", text);
    char line[64] = "";
    expect(pread(fd, line, 5, 0) == 5);
    say("read: %s\n", line);
    return text;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        say("a program of %s\n", argv[1]);
        return 0;
    }
    must(mkdir("d\xe4", 0700));
    must(chdir("d\xe4"));
    int fd = must(open(file, O_RDWR | O_CREAT, 0600));
    expect(write(fd, "bytes", 5) == 5);
    char *shared = (char *)must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    shared[0] = 'B';
    finish(start(named, NULL));
    // The program itself, by such a name.
    char own[4096];
    ssize_t n = must(readlink("/proc/self/exe", own, sizeof own - 1));
    own[n] = 0;
    must(symlink(own, "p\xfcg"));
    pid_t child = must(fork());
    if (!child) {
        execl("./p\xfcg", "p\xfcg", "its own", (char *)NULL);
        _exit(99);
    }
    int status;
    expect(waitpid(child, &status, 0) == child && status == 0);
    DIR *all = opendir(".");
    unsigned long names = 0;
    for (struct dirent *e; (e = readdir(all));) names += hash_bytes(e->d_name, strlen(e->d_name));
    closedir(all);
    say("names: %lu\n", names % 100000);
    must(unlink("p\xfcg"));
    must(unlink(file));
    must(chdir(".."));
    must(rmdir("d\xe4"));
    return 0;
}
