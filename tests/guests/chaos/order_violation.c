// Order violation: a thread uses what its maker sets after it has made it.
#include "fault.h"
static long *volatile given;
static void *body(void *p) {
    work(500000);
    if (!given) FOUND("it isn't there yet\n");
    return p;
}
int main(void) {
    for (long i = 0; i < 20; i++) {
        static long value;
        given = NULL;
        pthread_t a = start(body, NULL);
        work(50);
        given = &value;
        finish(a);
    }
    say("always there\n");
}
