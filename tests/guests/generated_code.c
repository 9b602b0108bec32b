// Code that the program writes itself: run, changed, run again; with system calls and rdtsc inside, in fresh and in reused pages.
#include "guest.h"

typedef long (*function)(long);

static size_t put(unsigned char *at, const char *bytes, size_t n) {
    memcpy(at, bytes, n);
    return n;
}

// mov $number,%eax; syscall; add $extra,%rax; ret
static void write_call(unsigned char *at, int number, int extra) {
    at += put(at, "\xb8", 1);
    memcpy(at, &number, 4);
    at += 4;
    at += put(at, "\x0f\x05\x48\x05", 4);
    memcpy(at, &extra, 4);
    at += 4;
    put(at, "\xc3", 1);
}

int main(void) {
    unsigned char *code = (unsigned char *)must(mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    long me = getpid(), parent = getppid();
    for (int round = 0; round < 200; round++) {
        // The same place calls one thing, then another.
        write_call(code, round % 2 ? SYS_getpid : SYS_getppid, round);
        for (int i = 0; i < 20; i++) expect(((function)code)(0) == (round % 2 ? me : parent) + round);
        expect(code[0] == 0xb8 && code[5] == 0x0f && code[6] == 0x05);
    }
    // Written in one view, run in another, as just-in-time compilers do.
    int memory = must(memfd_create("code", 0));
    must(ftruncate(memory, 4096));
    unsigned char *writable = (unsigned char *)must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
    unsigned char *runnable = (unsigned char *)must(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, memory, 0));
    for (int round = 0; round < 100; round++) {
        write_call(writable + round, SYS_getpid, round);
        for (int i = 0; i < 20; i++) expect(((function)(runnable + round))(0) == me + round);
    }
    // Pages that are turned executable, back, and unmapped.
    for (int round = 0; round < 50; round++) {
        unsigned char *page = (unsigned char *)must(mmap(code + 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
        write_call(page, SYS_getppid, round);
        must(mprotect(page, 4096, PROT_READ | PROT_EXEC));
        for (int i = 0; i < 20; i++) expect(((function)page)(0) == parent + round);
        must(mprotect(page, 4096, PROT_READ | PROT_WRITE));
        page[0] = 0xc3;
        must(munmap(page, 4096));
    }
    // rdtsc; shl $32,%rdx; or %rdx,%rax; ret
    put(code, "\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3", 10);
    say("pid %ld, parent %ld, rdtsc %ld\n", me, parent, ((function)code)(0));
}
