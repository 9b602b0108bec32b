// What a program says of the use of its files: advice, reading ahead, flushing in every form; none changes what is read.
// variant: companion -DGUEST_COMPANION
#include "guest.h"

int main(void) {
    int fd = must(open("file", O_CREAT | O_RDWR, 0600)), tube[2];
    static char bytes[1 << 16], again[1 << 16];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)mix(i);
    expect(write(fd, bytes, sizeof bytes) == sizeof bytes);
    must(pipe(tube));
    for (int advice = POSIX_FADV_NORMAL; advice <= POSIX_FADV_NOREUSE; advice++) expect(posix_fadvise(fd, 0, 0, advice) == 0);
    expect(posix_fadvise(fd, 0, 0, 99) == EINVAL);
    expect(posix_fadvise(fd, 0, -1, POSIX_FADV_NORMAL) == EINVAL);
    expect(posix_fadvise(77, 0, 0, POSIX_FADV_NORMAL) == EBADF);
    expect(posix_fadvise(tube[0], 0, 0, POSIX_FADV_NORMAL) == ESPIPE);
    must(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
    fails(EINVAL, sync_file_range(fd, 0, 0, 99));
    fails(EINVAL, sync_file_range(fd, -1, 1, 0));
    fails(ESPIPE, sync_file_range(tube[1], 0, 0, 0));
    must(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    must(readahead(fd, 0, 4096));
    must(readahead(fd, 1 << 30, 4096));
    fails(EINVAL, readahead(tube[0], 0, 4096));
    fails(EBADF, readahead(must(open("file", O_WRONLY)), 0, 4096));
    must(fdatasync(fd));
    must(fsync(fd));
    must(fsync(must(open(".", O_RDONLY))));
    fails(EINVAL, fsync(tube[1]));
    fails(EBADF, fdatasync(77));
    // Pages in the cache (cachestat, Linux 6.5).
    struct { uint64_t from, length; } range = {0, sizeof bytes};
    struct { uint64_t cached, dirty, writeback, evicted, recently; } state = {0};
    long r = syscall(451, fd, &range, &state, 0);
    expect(r == 0 || errno == ENOSYS || errno == EPERM);
    say("cached %lu, dirty %lu\n", state.cached, state.dirty);
    expect(pread(fd, again, sizeof again, 0) == sizeof again && memcmp(bytes, again, sizeof bytes) == 0);
}
