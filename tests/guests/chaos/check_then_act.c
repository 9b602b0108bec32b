// Check, then act: two threads draw from one account, each after it has looked whether there is enough.
#include "fault.h"
static volatile long balance;
static void *body(void *p) {
    for (long i = 0; i < 10000; i++) {
        if (balance >= 1) {
            work(10);
            balance -= 1;
            if (balance < 0) FOUND("a balance of %ld\n", balance);
        } else {
            balance = 1;
        }
        work(50);
    }
    return p;
}
int main(void) {
    pthread_t a = start(body, NULL), b = start(body, NULL);
    finish(a), finish(b);
    say("never overdrawn\n");
}
