// Blocks that another thread gave back are written to, where an allocator may keep its list of them; then they are asked for again.
// run: => any
#include "guest.h"

enum { BLOCKS = 200, SIZE = 64 };

static int *blocks[BLOCKS];

static void *give_back(void *unused) {
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    return unused;
}

int main(void) {
    for (int i = 0; i < BLOCKS; i++) expect((blocks[i] = malloc(SIZE)));
    pthread_t thread;
    expect(pthread_create(&thread, NULL, give_back, NULL) == 0);
    expect(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < BLOCKS; i++) *(volatile int *)blocks[i] = 1;
    for (int i = 0; i < 100 * BLOCKS; i++) blocks[i % BLOCKS] = malloc(SIZE);
    getppid();
    return 0;
}
