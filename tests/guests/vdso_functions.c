// The functions of the vDSO, found through its ELF headers as language runtimes do it, agree with the system calls.
#include "guest.h"
#include <elf.h>
#include <sys/auxv.h>

static void *find(const Elf64_Ehdr *elf, const char *name) {
    const Elf64_Phdr *headers = (const Elf64_Phdr *)((const char *)elf + elf->e_phoff);
    const char *base = NULL;
    const Elf64_Dyn *dynamic = NULL;
    for (int i = 0; i < elf->e_phnum; i++) {
        if (headers[i].p_type == PT_LOAD && base == NULL) base = (const char *)elf + headers[i].p_offset - headers[i].p_vaddr;
        if (headers[i].p_type == PT_DYNAMIC) dynamic = (const Elf64_Dyn *)((const char *)elf + headers[i].p_offset);
    }
    const Elf64_Sym *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *hash = NULL;
    if (dynamic == NULL || base == NULL) return NULL;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const char *p = base + dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_SYMTAB) symbols = (const Elf64_Sym *)p;
        if (dynamic->d_tag == DT_STRTAB) strings = p;
        if (dynamic->d_tag == DT_HASH) hash = (const uint32_t *)p;
    }
    if (!symbols || !strings || !hash) return NULL;
    for (uint32_t i = 0; i < hash[1]; i++)
        if (strcmp(strings + symbols[i].st_name, name) == 0) return (void *)(base + symbols[i].st_value);
    return NULL;
}

int main(void) {
    const Elf64_Ehdr *vdso = (const Elf64_Ehdr *)getauxval(AT_SYSINFO_EHDR);
    int (*gettime)(clockid_t, struct timespec *) = NULL;
    int (*getday)(struct timeval *, void *) = NULL;
    time_t (*gettime_s)(time_t *) = NULL;
    int (*getres)(clockid_t, struct timespec *) = NULL;
    long (*getprocessor)(unsigned *, unsigned *, void *) = NULL;
    if (vdso) {
        gettime = (__typeof__(gettime))find(vdso, "__vdso_clock_gettime");
        getday = (__typeof__(getday))find(vdso, "__vdso_gettimeofday");
        gettime_s = (__typeof__(gettime_s))find(vdso, "__vdso_time");
        getres = (__typeof__(getres))find(vdso, "__vdso_clock_getres");
        getprocessor = (__typeof__(getprocessor))find(vdso, "__vdso_getcpu");
    }
    for (int i = 0; i < 3; i++) {
        struct timespec direct = {0}, call, res = {0};
        struct timeval day = {0};
        time_t seconds = 0;
        unsigned cpu = 0;
        if (gettime) expect(gettime(CLOCK_MONOTONIC, &direct) == 0);
        expect(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &call) == 0);
        expect(call.tv_sec > direct.tv_sec || (call.tv_sec == direct.tv_sec && call.tv_nsec >= direct.tv_nsec));
        if (getday) expect(getday(&day, NULL) == 0);
        if (gettime_s) seconds = gettime_s(NULL);
        if (getres) expect(getres(CLOCK_MONOTONIC, &res) == 0);
        if (getprocessor) expect(getprocessor(&cpu, NULL, NULL) == 0);
        say("vdso %d: %ld.%ld, call %ld.%ld, day %ld.%ld, %ld s, resolution %ld, processor %u\n", vdso != NULL, direct.tv_sec, direct.tv_nsec, call.tv_sec,
            call.tv_nsec, day.tv_sec, day.tv_usec, seconds, res.tv_nsec, cpu);
    }
}
