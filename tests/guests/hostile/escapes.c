// A program that goes around its recorder: it jumps to a `syscall; ret` inside of the runtime, whose calls nobody looks at. While it is recorded it may do
// what it could do anyway; in a replay it may do nothing of it.
//
//   escapes ATTACK IMAGE LENGTH TARGET
//
// IMAGE, LENGTH: where the runtime's image lies. TARGET: a path, a port or a process, as the attack wants it. What worked it says by another such
// jump, with the word "ESCAPED".
#include "../guest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

static const unsigned char *gadget;

// A system call by that instruction, whoever runs; a debugger's user, too.
__attribute__((noinline, used)) static long raw_once(long n, long a, long b, long c, long d, long e) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = 0;
    __asm__ volatile("sub $128, %%rsp\n\tcall *%[gadget]\n\tadd $128, %%rsp"
                     : "=a"(result)
                     : [gadget] "r"(gadget), "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

// As often as it takes: in a replay the driver is asked about it, and until it has heard a signal of its own ends the call (seccomp_unotify(2)).
static long raw(long n, long a, long b, long c, long d, long e) {
    long result;
    do result = raw_once(n, a, b, c, d, e);
    while (result == -EINTR);
    return result;
}

static void boast(const char *what) {
    char text[100];
    int n = snprintf(text, sizeof text, "ESCAPED: %s\n", what);
    raw(SYS_write, 1, (long)text, n, 0, 0);
}

static void find(const unsigned char *image, unsigned long length) {
    // Only what can be read: its first pages are.
    for (unsigned long i = 0; i + 2 < length; i++) {
        if (image[i] == 0x0f && image[i + 1] == 0x05 && image[i + 2] == 0xc3) {
            gadget = image + i;
            return;
        }
    }
    say("no such instruction\n");
    exit(97);
}

static void writes(const char *path) {
    long fd = raw(SYS_openat, AT_FDCWD, (long)path, O_CREAT | O_WRONLY, 0600, 0);
    if (fd >= 0 && raw(SYS_write, fd, (long)"x", 1, 0, 0) == 1) boast("a file");
}

int main(int argc, char **argv) {
    expect(argc == 5);
    const char *attack = argv[1], *target = argv[4];
    find((const unsigned char *)strtoul(argv[2], NULL, 0), strtoul(argv[3], NULL, 0));
    // So that each attack can be told from what it is made by.
    char word = 0;
    long number = atol(target);
    if (!strcmp(attack, "write")) {
        writes(target);
    } else if (!strcmp(attack, "read")) {
        long fd = raw(SYS_openat, AT_FDCWD, (long)target, O_RDONLY, 0, 0);
        if (fd >= 0 && raw(SYS_read, fd, (long)&word, 1, 0, 0) == 1) boast("a secret");
    } else if (!strcmp(attack, "dispatch")) {
        // From here on all calls go to the kernel.
        if (raw(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) == 0) writes(target);
        int fd = open(target, O_CREAT | O_WRONLY, 0600);
        if (fd >= 0 && write(fd, "x", 1) == 1) boast("a file");
    } else if (!strcmp(attack, "connect")) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(number), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        long s = raw(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0);
        if (s >= 0 && raw(SYS_connect, s, (long)&to, sizeof to, 0, 0) == 0) boast("a connection");
    } else if (!strcmp(attack, "signal")) {
        if (raw(SYS_kill, number, SIGUSR1, 0, 0, 0) == 0) boast("a signal");
        if (raw(SYS_tgkill, number, number, SIGUSR1, 0, 0) == 0) boast("a signal to a thread");
    } else if (!strcmp(attack, "parent")) {
        char path[40];
        long parent = raw(SYS_getppid, 0, 0, 0, 0, 0);
        snprintf(path, sizeof path, "/proc/%ld/mem", parent);
        if (raw(SYS_openat, AT_FDCWD, (long)path, O_RDWR, 0, 0) >= 0) boast("its parent's memory");
        snprintf(path, sizeof path, "/proc/%ld/fd/0", parent);
        if (raw(SYS_openat, AT_FDCWD, (long)path, O_RDWR, 0, 0) >= 0) boast("its parent's input");
        struct iovec own = {&word, 1}, its = {(void *)gadget, 1};
        if (raw(SYS_process_vm_readv, parent, (long)&own, 1, (long)&its, 1) == 1) boast("its parent's bytes");
        if (raw(SYS_kill, parent, SIGURG, 0, 0, 0) == 0) boast("a signal to its parent");
    } else if (!strcmp(attack, "output")) {
        // What standard output is, beyond being written to.
        void *p = (void *)raw(SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED, 1);
        if ((long)p > 0 || (long)p < -4095) boast("a mapping of the output");
        if (raw(SYS_ftruncate, 1, 0, 0, 0, 0) == 0) boast("an empty output");
        if (raw(SYS_lseek, 1, 0, SEEK_SET, 0, 0) >= 0) boast("another place in the output");
        if (raw(SYS_dup3, 1, 50, 0, 0, 0) >= 0) boast("another descriptor of the output");
        // The input may be open for writing; what is recorded has none.
        if (raw(SYS_write, 0, (long)&word, 1, 0, 0) == 1) boast("a byte in the input");
    } else if (!strcmp(attack, "exec") || !strcmp(attack, "fork")) {
        // A child that no recording has; it is nobody's but its parent's parent's, or the system's.
        for (int parents = 0; parents < 2; parents++) {
            long child = raw(SYS_clone, SIGCHLD | (parents ? CLONE_PARENT : 0), 0, 0, 0, 0);
            if (child == 0) {
                const char *command[] = {"/bin/sh", "-c", "echo x >\"$0\"", target, NULL}, *none[] = {NULL};
                // The shell's dynamic linker reads the clock of the processor.
                raw(SYS_prctl, PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
                if (!strcmp(attack, "exec")) raw(SYS_execve, (long)command[0], (long)command, (long)none, 0, 0);
                // It stays as long as it is let; it looks at nothing that is recorded.
                struct timespec a_second = {1, 0};
                for (int i = 0; !strcmp(attack, "fork") && i < number; i++) raw(SYS_nanosleep, (long)&a_second, 0, 0, 0, 0);
                raw(SYS_exit_group, 0, 0, 0, 0, 0);
            }
        }
    } else {
        return 98;
    }
    say("done\n");
    return 0;
}
