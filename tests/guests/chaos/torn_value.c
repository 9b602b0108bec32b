// Torn value: two words that belong together are written and read one after the other.
#include "fault.h"
static volatile long low, high, over;
static void *writer(void *p) {
    for (long i = 1; i < 60000; i++) {
        low = i;
        high = -i;
        work(20);
    }
    over = 1;
    return p;
}
int main(void) {
    pthread_t a = start(writer, NULL);
    while (!over) {
        long l = low, h = high;
        if (l != -h) FOUND("%ld and %ld\n", l, h);
        work(20);
    }
    finish(a);
    say("always whole\n");
}
