// A child becomes a 32-bit program: natively it exits with 7; where it can't be recorded it is ended, and its parent goes on.
#include "guest.h"
#include <elf.h>
#include <sys/wait.h>

static const unsigned char code[] = {
    0xb8, 1, 0, 0, 0,  // mov $1,%eax: exit
    0xbb, 7, 0, 0, 0,  // mov $7,%ebx
    0xcd, 0x80,        // int $0x80
};

int main(void) {
    struct {
        Elf32_Ehdr file;
        Elf32_Phdr part;
        unsigned char code[sizeof code];
    } program = {
        .file = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT},
                 .e_type = ET_EXEC,
                 .e_machine = EM_386,
                 .e_version = EV_CURRENT,
                 .e_entry = 0x10000 + sizeof(Elf32_Ehdr) + sizeof(Elf32_Phdr),
                 .e_phoff = sizeof(Elf32_Ehdr),
                 .e_ehsize = sizeof(Elf32_Ehdr),
                 .e_phentsize = sizeof(Elf32_Phdr),
                 .e_phnum = 1},
        .part = {.p_type = PT_LOAD,
                 .p_vaddr = 0x10000,
                 .p_filesz = sizeof program,
                 .p_memsz = sizeof program,
                 .p_flags = PF_R | PF_X,
                 .p_align = 4096},
    };
    memcpy(program.code, code, sizeof code);
    int fd = must(open("small32", O_CREAT | O_EXCL | O_WRONLY, 0700));
    expect(write(fd, &program, sizeof program) == sizeof program);
    must(close(fd));
    pid_t pid = must(fork());
    if (pid == 0) {
        execl("./small32", "small32", NULL);
        // A kernel without 32-bit programs.
        _exit(errno == ENOEXEC ? 7 : 1);
    }
    int status;
    expect(must(waitpid(pid, &status, 0)) == pid);
    bool by_itself = WIFEXITED(status) && WEXITSTATUS(status) == 7;
    expect(by_itself || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    say("pid %d, by itself %d\n", pid, by_itself);
    must(unlink("small32"));
}
