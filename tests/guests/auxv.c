// The auxiliary vector on the stack and the one in /proc/self/auxv agree with each other.
// variant: static -static
#include "guest.h"
#include <elf.h>
#include <sys/auxv.h>

extern char **environ;

int main(int argc, char **argv) {
    (void)argc;
    char **e = environ;
    while (*e) e++;
    Elf64_auxv_t *stack = (Elf64_auxv_t *)(e + 1);
    size_t entries = 0;
    while (stack[entries].a_type != AT_NULL) entries++;
    expect(entries > 10 && entries < 64);
    Elf64_auxv_t file[64];
    int fd = must(open("/proc/self/auxv", O_RDONLY));
    ssize_t n = must(read(fd, file, sizeof file));
    close(fd);
    // What a tracer changed in one it must change in the other.
    expect((size_t)n >= (entries + 1) * sizeof *file);
    for (size_t i = 0; i < entries; i++) expect(file[i].a_type == stack[i].a_type && file[i].a_un.a_val == stack[i].a_un.a_val);
    const uint64_t *random = (const uint64_t *)getauxval(AT_RANDOM);
    say("random 0x%lx 0x%lx\n", random[0], random[1]);
    say("page %lu entry 0x%lx phdr 0x%lx hwcap 0x%lx clock %lu\n", getauxval(AT_PAGESZ), getauxval(AT_ENTRY), getauxval(AT_PHDR), getauxval(AT_HWCAP), getauxval(AT_CLKTCK));
    const char *name = (const char *)getauxval(AT_EXECFN);
    expect(name != NULL && strstr(name, "auxv") != NULL && strstr(argv[0], "auxv") != NULL);
    say("stack near 0x%lx, heap near 0x%lx\n", (unsigned long)&stack, (unsigned long)malloc(1));
}
