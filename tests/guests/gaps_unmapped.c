// A program unmaps all that lies between its own mappings, as loaders and sandboxes do to have the address space to themselves: nothing is there, and nothing changes.
// run: 3
#include "guest.h"

static void *body(void *p) {
    volatile long n = 0;
    for (int i = 0; i < 200000; i++) n = n * 31 + (long)p;
    return NULL;
}

// The gaps between all mappings, which are in order.
static int read_gaps(unsigned long gaps[][2], int most) {
    FILE *maps = fopen("/proc/self/maps", "r");
    expect(maps);
    char line[4096 + 100];
    unsigned long at = 0x10000, start, end;
    int count = 0;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx", &start, &end) != 2 || start > 0x7fffffffffff) continue;
        if (start > at && count < most) {
            gaps[count][0] = at;
            gaps[count++][1] = start;
        }
        at = end;
    }
    fclose(maps);
    return count;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 3;
    static unsigned long gaps[4096][2];
    pthread_t threads[16];
    for (long i = 0; i < count; i++) threads[i] = start(body, (void *)i);
    // What stdio and its buffers are to be is there before the gaps are looked for.
    printf("%d threads\n", count);
    fflush(stdout);
    int found = read_gaps(gaps, 4096);
    expect(found > 2);
    // The gap below the stack is where that grows; the rest is nobody's.
    unsigned long here = (unsigned long)&here;
    for (int i = 0; i < found; i++) {
        int below_stack = here - gaps[i][1] < 64 << 20;
        if (!below_stack) must(munmap((void *)gaps[i][0], gaps[i][1] - gaps[i][0]));
    }
    must(munmap((void *)0x100000000, 0x100000000));
    for (int i = 0; i < count; i++) finish(threads[i]);
    for (long i = 0; i < count; i++) threads[i] = start(body, (void *)i);
    for (int i = 0; i < count; i++) finish(threads[i]);
    puts("all there");
}
