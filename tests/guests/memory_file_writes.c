// A mapped file that is written by every call that can write to a file: both a shared and an older private mapping show it, apart
// from the private pages that were written. And files that come and go: an inode is used again, a descriptor's number too.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { PAGE = 4096, PAGES = 8 };

static char *private_, *shared;
static int fd;

// Where the mappings show the file and where they don't.
static void look(const char *what) {
    char file[64];
    struct stat st;
    must(fstat(fd, &st));
    size_t n = st.st_size < PAGES * PAGE ? st.st_size : PAGES * PAGE;
    static char bytes[PAGES * PAGE];
    expect(pread(fd, bytes, n, 0) == (ssize_t)n);
    expect(memcmp(shared, bytes, n) == 0);
    // Page 1 was written: it is private.
    expect(private_[PAGE] == 'P');
    expect(memcmp(private_, bytes, n < PAGE ? n : PAGE) == 0);
    if (n > 2 * PAGE) expect(memcmp(private_ + 2 * PAGE, bytes + 2 * PAGE, n - 2 * PAGE) == 0);
    snprintf(file, sizeof file, "%s", what);
    say("%s: %zu bytes, hash %lx, private %lx\n", file, n, hash_bytes(shared, n), hash_bytes(private_, n < PAGE ? n : PAGE));
}

static int temporary(const char *text, size_t times) {
    char name[] = "otherXXXXXX";
    int other = must(mkstemp(name));
    for (size_t i = 0; i < times; i++) expect(write(other, text, strlen(text)) == (ssize_t)strlen(text));
    must(unlink(name));
    must(lseek(other, 0, SEEK_SET));
    return other;
}

int main(void) {
    char name[] = "mapXXXXXX";
    fd = must(mkstemp(name));
    char block[PAGE];
    for (int i = 0; i < PAGES; i++) {
        memset(block, 'a' + i, PAGE);
        expect(write(fd, block, PAGE) == PAGE);
    }
    private_ = (char *)must(mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    private_[PAGE] = 'P';
    // A part of it may not be written any more.
    must(mprotect(private_ + PAGE, PAGE, PROT_READ));
    expect(pwrite(fd, "before", 6, 100) == 6);
    expect(memcmp(private_ + 100, "before", 6) == 0);
    shared = (char *)must(mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    look("pwrite before the shared mapping");
    must(lseek(fd, 200, SEEK_SET));
    expect(write(fd, "write", 5) == 5);
    look("write");
    struct iovec two[] = {{(void *)"wri", 3}, {(void *)"tev", 3}};
    expect(writev(fd, two, 2) == 6);
    expect(pwritev(fd, two, 2, 3 * PAGE) == 6);
    expect(pwritev2(fd, two, 2, 3 * PAGE + 50, 0) == 6);
    expect(pwritev2(fd, two, 2, -1, 0) == 6);
    look("vectors");
    int copy = must(dup(fd));
    int again = must(open(name, O_WRONLY));
    expect(pwrite(copy, "dup", 3, 4 * PAGE) == 3 && pwrite(again, "again", 5, 4 * PAGE + 10) == 5);
    must(close(again));
    // The number now belongs to another file.
    int other = temporary("unrelated ", 100);
    expect(other == again);
    expect(write(other, "nothing", 7) == 7);
    must(lseek(other, 0, SEEK_SET));
    look("other descriptors");
    must(lseek(fd, 5 * PAGE, SEEK_SET));
    expect(sendfile(fd, other, NULL, 300) == 300);
    look("sendfile");
    off_t from = 10, to = 5 * PAGE + 1000;
    ssize_t copied = copy_file_range(other, &from, fd, &to, 200, 0);
    expect(copied == 200 || errno == EXDEV || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL);
    look("copy_file_range");
    int tube[2];
    must(pipe(tube));
    expect(write(tube[1], "through a pipe", 14) == 14);
    off_t at = 6 * PAGE;
    expect(splice(tube[0], NULL, fd, &at, 14, 0) == 14);
    look("splice");
    must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * PAGE, PAGE));
    expect(shared[2 * PAGE] == 0 && private_[2 * PAGE] == 0);
    look("a hole");
    must(posix_fallocate(fd, 0, PAGES * PAGE));
    must(fcntl(fd, F_SETFL, O_APPEND));
    must(ftruncate(fd, 7 * PAGE));
    expect(write(fd, "appended", 8) == 8);
    // Linux appends here, too.
    expect(pwrite(fd, "and again", 9, 0) == 9);
    look("append");
    must(truncate(name, 3 * PAGE));
    must(truncate(name, PAGES * PAGE));
    expect(shared[5 * PAGE] == 0);
    look("truncate");
    // Reading a file into its own mapping, and writing from it to itself.
    expect(pwrite(copy, shared + PAGE, 100, 0) > 0);
    look("from itself");
    must(close(must(open(name, O_WRONLY | O_TRUNC))));
    must(ftruncate(fd, PAGES * PAGE));
    expect(shared[0] == 0 && private_[0] == 0);
    must(munmap(private_, PAGES * PAGE));
    shared[7] = 'm';
    must(munmap(shared, PAGES * PAGE));
    // Written while it isn't mapped, then mapped again.
    must(fcntl(fd, F_SETFL, 0));
    expect(pwrite(fd, "unmapped", 8, 3000) == 8);
    shared = (char *)must(mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
    expect(shared[7] == 'm' && memcmp(shared + 3000, "unmapped", 8) == 0);
    say("mapped again: %lx\n", hash_bytes(shared, PAGES * PAGE));
    must(munmap(shared, PAGES * PAGE));
    must(close(copy));
    must(close(fd));
    must(unlink(name));

    // Files that come and go: the same inodes, the same descriptors, other contents.
    uint64_t sum = 0;
    for (int i = 0; i < 20; i++) {
        char text[32];
        snprintf(text, sizeof text, "file %d ", i);
        int f = temporary(text, 70);
        char *p = (char *)must(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, i % 2 ? MAP_SHARED : MAP_PRIVATE, f, 0));
        expect(memcmp(p, text, strlen(text)) == 0);
        expect(pwrite(f, "new", 3, 100) == 3);
        expect(memcmp(p + 100, "new", 3) == 0);
        p[200] = 'x';
        sum += hash_bytes(p, PAGE);
        must(munmap(p, PAGE));
        must(close(f));
    }
    say("files that come and go: %lx\n", sum);
    // A file in memory that grows under its mapping, as a heap of some runtimes does.
    int memory = must(memfd_create("heap", 0));
    char *heap = (char *)must(mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0));
    for (int i = 1; i <= 64; i *= 2) {
        must(ftruncate(memory, i * PAGE));
        heap[i * PAGE - 1] = (char)i;
        expect(pwrite(memory, &i, sizeof i, (i - 1) * PAGE) == sizeof i);
    }
    must(fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
    say("heap: %lx\n", hash_bytes(heap, 64 * PAGE));
    // Zeros, as programs got them before there was MAP_ANONYMOUS.
    int zero = must(open("/dev/zero", O_RDWR));
    char *zeros = (char *)must(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0));
    zeros[PAGE] = 'z';
    say("zeros: %lx\n", hash_bytes(zeros, 2 * PAGE));
    // What can't be mapped.
    fails(EACCES, mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, must(open("/proc/self/exe", O_RDONLY)), 0));
    fails(EBADF, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 999, 0));
    fails(ENODEV, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, tube[0], 0));
    fails(ENODEV, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, must(open(".", O_RDONLY)), 0));
    fails(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, memory, 100));
    fails(EINVAL, mmap(NULL, 0, PROT_READ, MAP_PRIVATE, memory, 0));
}
