// A buffer that all callers share: a function returns a pointer to its static memory.
#include "fault.h"
static const char *text_of(long n) {
    static char text[32];
    snprintf(text, sizeof text, "%ld", n);
    return text;
}
static void *body(void *p) {
    for (long i = 0; i < 2000; i++) {
        long n = (p ? 1000000 : 2000000) + i;
        const char *text = text_of(n);
        work(10);
        if (strtol(text, NULL, 10) != n) FOUND("%s instead of %ld\n", text, n);
        work(500);
    }
    return NULL;
}
int main(void) {
    pthread_t a = start(body, NULL), b = start(body, &a);
    finish(a), finish(b);
    say("each had its own\n");
}
