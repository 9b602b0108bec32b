// remap_file_pages: the pages of a mapped file in another order.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

enum { PAGE = 4096 };

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR, 0600));
    for (int i = 0; i < 6; i++) expect(pwrite(fd, (char[]){(char)('0' + i)}, 1, i * PAGE) == 1);
    must(ftruncate(fd, 6 * PAGE));
    char *p = (char *)must(mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    int r = remap_file_pages(p, PAGE, 0, 3, 0);
    if (r != 0) {
        expect(errno == ENOSYS || errno == EINVAL);
        say("not here\n");
        return 0;
    }
    must(remap_file_pages(p + 3 * PAGE, 2 * PAGE, 0, 0, 0));
    char order[7] = "";
    for (int i = 0; i < 6; i++) order[i] = p[i * PAGE];
    expect(strcmp(order, "312015") == 0);
    p[0] = 'x';
    char c;
    expect(pread(fd, &c, 1, 3 * PAGE) == 1 && c == 'x' && p[3 * PAGE] == '0');
    fails(EINVAL, remap_file_pages(p, PAGE, PROT_READ, 3, 0));
    fails(EINVAL, remap_file_pages(must(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), PAGE, 0, 0, 0));
    must(munmap(p + PAGE, PAGE));
    say("%s\n", "rearranged");
}
