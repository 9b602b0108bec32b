// A program that writes into the memory that it shares with its recorder what is not true, so that the recorder does to a foreign process what it does
// to the program's own.
//
//   forges ATTACK VICTIM SESSION BOX SLOT PID TID PROCESS KERNEL_PID
//
// SESSION: where the session's memory lies; from there on BOX: its box of requests, SLOT: its first slot, PROCESS: its first process; PID and TID: ids in a
// slot, KERNEL_PID: that in a process. As root it drops its privileges first.
#include "../guest.h"
#include <grp.h>
#include <linux/futex.h>

enum { EXEC = 2, KEEP_FILE = 1 };

struct box {
    _Atomic uint32_t taken, pad, kind, status;
    _Atomic uint64_t args[4], answer[4];
};

static char *session;
static struct box *box;
static _Atomic uint32_t *word(unsigned long at) { return (_Atomic uint32_t *)(session + at); }
static volatile long over;

static void *waits(void *p) {
    // Somebody who wants the baton, for as long as it takes.
    while (!over) sched_yield();
    return p;
}

// Asks the recorder, as no thread of the program would; its answer's status.
static uint32_t ask(uint32_t kind, uint64_t a, uint64_t b, uint64_t c) {
    box->taken = 1;
    box->args[0] = a;
    box->args[1] = b;
    box->args[2] = c;
    box->status = 4711;
    box->answer[0] = 0;
    box->kind = kind;
    // Nobody is asked to hurry, and no call of the program's shows where it is.
    for (long i = 0; i < 20000000000 && box->kind != 0; i++) {
    }
    uint32_t status = box->status;
    box->taken = 0;
    return status;
}

// Computes for some ten milliseconds, and comes to no gate.
static void computes(void) {
    for (volatile long i = 0; i < 15000000; i++) {
    }
}

// Another child of who has started this process: its recorder.
static uint32_t sibling(void) {
    char name[64], list[256] = "";
    snprintf(name, sizeof name, "/proc/%d/task/%d/children", getppid(), getppid());
    int fd = must(open(name, O_RDONLY));
    expect(read(fd, list, sizeof list - 1) > 0);
    for (char *rest = list, *end;; rest = end) {
        uint32_t child = strtoul(rest, &end, 10);
        expect(end != rest);
        if (child != (uint32_t)getpid()) return child;
    }
}

int main(int argc, char **argv) {
    expect(argc == 10);
    const char *attack = argv[1];
    uint32_t victim = atoi(argv[2]);
    session = (char *)strtoul(argv[3], NULL, 0);
    box = (struct box *)(session + strtoul(argv[4], NULL, 0));
    unsigned long slot = strtoul(argv[5], NULL, 0), pid = strtoul(argv[6], NULL, 0), tid = strtoul(argv[7], NULL, 0);
    unsigned long process = strtoul(argv[8], NULL, 0) + strtoul(argv[9], NULL, 0);
    if (geteuid() == 0) {
        expect(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
    }
    if (!strcmp(attack, "exec")) {
        say("asked to exec it: %u\n", ask(EXEC, victim, victim, 0));
    } else if (!strcmp(attack, "exec_own")) {
        // One's own thread, which has not asked.
        say("asked to exec it: %u\n", ask(EXEC, *word(slot + tid), *word(slot + pid), 0));
    } else if (!strcmp(attack, "exec_nobody")) {
        say("asked to exec it: %u\n", ask(EXEC, 0xffffffffffff, (uint64_t)victim << 32 | 1, 1 << 20));
    } else if (!strcmp(attack, "exec_never")) {
        // One's own thread waits for the answer, as who has asked does, and then makes no such call.
        box->taken = 1;
        box->args[0] = *word(slot + tid);
        box->args[1] = *word(slot + pid);
        box->args[2] = 0;
        box->kind = EXEC;
        while (box->kind != 0) syscall(SYS_futex, &box->kind, FUTEX_WAIT, EXEC, NULL, NULL, 0);
        box->taken = 0;
        say("asked to exec it: %u\n", box->status);
        pause();
    } else if (!strcmp(attack, "file")) {
        say("asked for its file: %u\n", ask(KEEP_FILE, 0, victim, 0));
    } else if (!strcmp(attack, "secret")) {
        // A file that this program may name, and not read.
        int fd = open("/etc/shadow", O_PATH);
        expect(fd >= 0);
        uint32_t status = ask(KEEP_FILE, fd, *word(slot + pid), 0);
        say("asked for a secret: %u, %lx\n", status, (long)box->answer[0]);
    } else if (!strcmp(attack, "pipe")) {
        // Who opens it anew for reading waits for a writer.
        char name[40];
        snprintf(name, sizeof name, "/tmp/forged-pipe-%d", getpid());
        must(mkfifo(name, 0600));
        int fd = must(open(name, O_PATH));
        must(unlink(name));
        say("asked for a pipe: %u\n", ask(KEEP_FILE, fd, *word(slot + pid), 0));
    } else if (!strcmp(attack, "cut")) {
        pthread_t a = start(waits, NULL);
        sched_yield();
        // For less than a second at a time, also on a busy machine: the recorder would find then that the turn is nobody's, and end the recording.
        for (int i = 0; i < 20; i++) {
            uint32_t own[2] = {*word(slot + pid), *word(slot + tid)};
            *word(slot + pid) = victim;
            *word(slot + tid) = victim;
            computes();
            *word(slot + pid) = own[0];
            *word(slot + tid) = own[1];
            sched_yield();
        }
        over = 1;
        finish(a);
        say("was another one\n");
    } else if (!strcmp(attack, "parent")) {
        // The first process is who has started this one, for as long as it takes the recorder to look at that one's children twice.
        uint32_t own = *word(process);
        *word(process) = getppid();
        for (int i = 0; i < 80; i++) computes();
        *word(process) = own;
        say("was its parent\n");
    } else if (!strcmp(attack, "thread_recorder")) {
        // Its thread is who records it, when it has ended.
        *word(slot + tid) = sibling();
        say("was who records it\n");
    } else if (!strcmp(attack, "full") || !strcmp(attack, "full_recorder")) {
        // The trace is full soon, and the program is to end with it; or who records it.
        *word(process) = strcmp(attack, "full") ? (uint32_t)getppid() : victim;
        static char block[64 << 10];
        int fd = open("/dev/urandom", O_RDONLY);
        expect(fd >= 0);
        for (int i = 0; i < 400; i++) expect(read(fd, block, sizeof block) == sizeof block);
        say("not ended\n");
    } else {
        return 98;
    }
    return 0;
}
