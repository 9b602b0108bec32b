// Figure 1 of the DThreads paper: each thread sets its own flag if the other's is not set. Natively it prints 1,0 or 0,1 or 1,1, under
// `reprise run` always 1,1: neither thread sees the other's write before it has ended.
#include "guest.h"

static int a, b;

static void *first(void *arg) {
    (void)arg;
    if (b == 0) a = 1;
    return NULL;
}

static void *second(void *arg) {
    (void)arg;
    if (a == 0) b = 1;
    return NULL;
}

int main(void) {
    pthread_t one, two;
    expect(pthread_create(&one, NULL, first, NULL) == 0);
    expect(pthread_create(&two, NULL, second, NULL) == 0);
    expect(pthread_join(one, NULL) == 0);
    expect(pthread_join(two, NULL) == 0);
    say("%d,%d\n", a, b);
    return 0;
}
