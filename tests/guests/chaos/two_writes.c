// One message in two writes: others write between head and body.
#include "fault.h"
#define MESSAGES 300
static int ends[2];
static void *body(void *p) {
    char name = p ? 'a' : 'b';
    for (long i = 0; i < MESSAGES; i++) {
        expect(write(ends[1], &name, 1) == 1);
        expect(write(ends[1], &name, 1) == 1);
        work(200);
    }
    return NULL;
}
int main(void) {
    expect(pipe(ends) == 0);
    pthread_t a = start(body, NULL), b = start(body, ends);
    finish(a), finish(b);
    for (long i = 0; i < 2 * MESSAGES; i++) {
        char message[2];
        expect(read(ends[0], message, 2) == 2);
        if (message[0] != message[1]) FOUND("message %ld is of both\n", i);
    }
    say("whole messages\n");
}
