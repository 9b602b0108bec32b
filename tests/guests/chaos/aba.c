// ABA: a stack without locks, whose top is compared by its address alone; the node may have gone and come back meanwhile.
#include "fault.h"
typedef struct Node {
    struct Node *next;
    volatile long owners;
} Node;
static Node nodes[3];
static Node *top;
static void push(Node *n) {
    do n->next = __atomic_load_n(&top, __ATOMIC_ACQUIRE);
    while (!__sync_bool_compare_and_swap(&top, n->next, n));
}
static Node *pop(void) {
    for (;;) {
        Node *n = __atomic_load_n(&top, __ATOMIC_ACQUIRE);
        if (!n) return NULL;
        Node *next = n->next;
        work(5);
        if (__sync_bool_compare_and_swap(&top, n, next)) return n;
    }
}
static void use(Node *n) {
    if (__sync_fetch_and_add(&n->owners, 1) != 0) FOUND("two threads have the same node\n");
    work(30);
    __sync_fetch_and_sub(&n->owners, 1);
}
static void *body(void *p) {
    for (long i = 0; i < 10000; i++) {
        Node *a = pop(), *b = pop();
        if (a) use(a);
        if (a) push(a);
        if (b) use(b);
        if (b) push(b);
    }
    return p;
}
int main(void) {
    for (int i = 0; i < 3; i++) push(&nodes[i]);
    pthread_t a = start(body, NULL), b = start(body, NULL);
    finish(a), finish(b);
    say("each node had one owner\n");
}
