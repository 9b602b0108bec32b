// Constructors, atexit, on_exit, destructors: in order, and the last one still may print.
// run: => 5
// variant: static -static
#include "guest.h"

__attribute__((constructor)) static void before(void) { say("constructor\n"); }
__attribute__((destructor)) static void after(void) { say("destructor\n"); }
static void first(void) { say("registered first, runs last\n"); }
static void second(void) { say("registered second, runs first\n"); }
static void with_status(int status, void *p) { say("status %d, %ld\n", status, (long)p); }

int main(void) {
    atexit(first);
    on_exit(with_status, (void *)7);
    atexit(second);
    printf("buffered until exit\n");
    exit(5);
}
