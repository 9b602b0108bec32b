// What a recording can't have is refused, and told of while the program still runs: it waits for a line before it ends. Natively some of it works.
#include "guest.h"
#include <linux/io_uring.h>
#include <linux/if_packet.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>

static void attempt(const char *name, long result) {
    say("%s: %d\n", name, result < 0);
}

static int ends_at_once(void *unused) {
    (void)unused;
    _exit(0);
}

int main(void) {
    unsigned long context = 0, word = 1;
    struct io_uring_params params = {0};
    struct iovec part = {&word, sizeof word};
    struct tpacket_req ring = {4096, 1, 2048, 2};
    int ends[2];
    must(pipe(ends));
    attempt("ptrace", ptrace(PTRACE_ATTACH, 1 << 22, NULL, NULL));
    attempt("io_setup", syscall(SYS_io_setup, 4, &context));
    attempt("io_uring_setup", syscall(SYS_io_uring_setup, 4, &params));
    attempt("vmsplice", syscall(SYS_vmsplice, ends[1], &part, 1, 0));
    attempt("packet ring", setsockopt(must(socket(AF_UNIX, SOCK_DGRAM, 0)), SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring));
    attempt("modify_ldt", syscall(SYS_modify_ldt, 0, &word, sizeof word));
    attempt("perf_event_open", syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0));
    attempt("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC));
    attempt("%gs", syscall(SYS_arch_prctl, 0x1001, &word));
    static char stack[64 << 10];
    attempt("shared handlers", clone(ends_at_once, stack + sizeof stack, CLONE_VM | CLONE_SIGHAND | SIGCHLD, NULL));
    long result, number = 20;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number) : "memory", "r8", "r9", "r10", "r11");
    attempt("int 0x80", result);
    char c;
    must(read(0, &c, 1));
    say("the end\n");
}
