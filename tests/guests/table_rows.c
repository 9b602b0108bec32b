// Walks rows of the table of system calls, which are on standard input, a line each: number, name, and what each argument is.
//   =N   this number          f    a descriptor          n    how many (bytes, or elements) there are in a buffer
//   r    memory that is read  w    memory that is written
//   p    a path               l    a length, by a pointer  i N  N iovecs        m    a message        b    messages
// Each is called with all memory good, then with each pointer in turn near the end of a page behind which there is nothing. For each row
// one line says which errors there were, and one what became of the results and of all memory.
// heavy
#include "guest.h"
#include <sys/socket.h>
#include <sys/uio.h>

enum { PAGE = 4096, ARGS = 6, ROOM = 16 };

// Of each argument: two pages, the second of which is never there.
static char *area[ARGS];
// What a vector or a message points to.
static char *inner;
static uint64_t sum;

static void mix_in(const void *bytes, size_t n) {
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++) sum = (sum ^ b[i]) * 0x100000001b3;
}

static char *new_area(void) {
    char *at = must(mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must(munmap(at + PAGE, PAGE));
    return at;
}

// One call; `bad` is the argument whose memory has only `left` bytes, -1: none.
static long call(int nr, char (*kinds)[24], int count, int fd, int bad, int left, int size) {
    long args[ARGS] = {0};
    memset(inner, 0x5a, PAGE);
    for (int i = 0; i < count; i++) {
        memset(area[i], kinds[i][0] == 'w' ? 0x5a : 0, PAGE);
        char *at = area[i] + PAGE - (i == bad ? left : 2048);
        switch (kinds[i][0]) {
        case '=': args[i] = strtoul(kinds[i] + 1, 0, 0); break;
        case 'f': args[i] = fd; break;
        case 'n': args[i] = size; break;
        case 'r':
        case 'w': args[i] = (long)at; break;
        case 'p': args[i] = (long)strcpy(area[i] + 64, "/"); break;
        case 'l':
            if (i != bad || left >= 4) memcpy(at, &size, 4);
            args[i] = (long)at;
            break;
        case 'i': {
            // The last of the parts is the bad one.
            struct iovec *v = (void *)(area[i] + 64);
            v[0] = (struct iovec){inner, 16};
            v[1] = (struct iovec){inner + PAGE - (i == bad ? left : 1024), 64};
            args[i] = (long)v;
            break;
        }
        case 'm':
        case 'b': {
            struct mmsghdr *m = (void *)(area[i] + 64);
            struct iovec *v = (void *)(area[i] + 1024);
            for (int k = 0; k < (kinds[i][0] == 'b' ? 2 : 1); k++) {
                v[2 * k] = (struct iovec){inner + 256 * k, 2};
                v[2 * k + 1] = (struct iovec){inner + PAGE - (i == bad ? left : 1024) , 64};
                m[k].msg_hdr = (struct msghdr){.msg_iov = v + 2 * k, .msg_iovlen = 2};
            }
            args[i] = (long)m;
            break;
        }
        }
    }
    long r = syscall(nr, args[0], args[1], args[2], args[3], args[4], args[5]);
    if (r < 0) r = -errno;
    for (int i = 0; i < count; i++) mix_in(area[i], PAGE);
    mix_in(inner, PAGE);
    mix_in(&r, sizeof r);
    return r;
}

int main(void) {
    static const int lefts[] = {0, 1, 3, 4, 8, 12, 16, 24, 28, 40, 100};
    for (int i = 0; i < ARGS; i++) area[i] = new_area();
    inner = new_area();
    char line[1024];
    while (fgets(line, sizeof line, stdin)) {
        char kinds[ARGS][24] = {{0}}, name[128];
        int nr, used, count = 0, at;
        expect(sscanf(line, "%d %127s%n", &nr, name, &at) == 2);
        while (count < ARGS && sscanf(line + at, "%23s%n", kinds[count], &used) == 1) at += used, count++;
        int pair[2], ends[2], own[4], own_count;
        bool has_fd = false;
        for (int i = 0; i < count; i++) has_fd |= kinds[i][0] == 'f';
        char errors[4096] = "";
        sum = 0xcbf29ce484222325;
        for (int kind = has_fd ? 0 : 3; kind < 4; kind++) {
            for (int v = -1; v < count; v++) {
                if (v >= 0 && !strchr("rwlimb", kinds[v][0])) continue;
                for (unsigned k = 0; k < (v < 0 ? 1 : sizeof lefts / sizeof *lefts); k++) {
                    for (int size = 0; size < 2; size++) {
                        // New ones each time, so that all that is read is there.
                        int fd = -1;
                        own_count = 0;
                        if (kind == 0) own[own_count++] = fd = must(open("/", O_RDONLY));
                        if (kind == 1) {
                            must(pipe2(ends, O_NONBLOCK));
                            own[own_count++] = fd = ends[0], own[own_count++] = ends[1];
                            for (int w = 0; w < 4; w++) expect(write(ends[1], "0123456789abcdefghi", 19) == 19);
                        }
                        if (kind == 2) {
                            must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair));
                            own[own_count++] = fd = pair[0], own[own_count++] = pair[1];
                            for (int w = 0; w < 4; w++) expect(write(pair[1], "0123456789abcdefghi", 19) == 19);
                        }
                        long r = call(nr, kinds, count, fd, v, v < 0 ? 0 : lefts[k], size ? 512 : ROOM);
                        for (int o = 0; o < own_count; o++) close(own[o]);
                        char piece[32];
                        snprintf(piece, sizeof piece, " %ld", r < 0 ? -r : 0);
                        if (strlen(errors) + strlen(piece) < sizeof errors - 1) strcat(errors, piece);
                    }
                }
            }
        }
        say("%s:%s\n", name, errors);
        say("%s = %016lx\n", name, sum);
    }
    return 0;
}
