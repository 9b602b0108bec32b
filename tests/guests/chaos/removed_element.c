// An element that is removed while another thread goes through the list and stands at it.
#include "fault.h"
#define ELEMENTS 8
typedef struct Element {
    struct Element *volatile next;
    volatile long value;
} Element;
static Element elements[ELEMENTS];
static volatile bool over;
static void *remover(void *p) {
    for (long i = 0; i < 1000; i++) {
        Element *before = &elements[i % (ELEMENTS - 1)], *gone = before->next;
        before->next = gone->next;
        gone->value = -1;
        work(20);
        gone->value = 1;
        before->next = gone;
        work(2000);
    }
    over = true;
    return p;
}
int main(void) {
    for (int i = 0; i < ELEMENTS; i++) elements[i] = (Element){i + 1 < ELEMENTS ? &elements[i + 1] : NULL, 1};
    pthread_t a = start(remover, NULL);
    while (!over) {
        for (Element *e = elements; e; e = e->next) {
            work(3);
            if (e->value == -1) FOUND("an element that isn't there any more\n");
        }
        work(500);
    }
    finish(a);
    say("never seen\n");
}
