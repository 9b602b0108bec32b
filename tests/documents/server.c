// A small server without a network: workers answer requests from a queue. With arguments it crashes in the end.
//
// The documents name places and variables in it: line 120 looks at request->length, and `len` is the same there.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reprise.h"

// The program as it was recorded, before somebody wanted to know more.
#ifdef NO_PRINTS
#define reprise_printf(...) (void)0
#endif

enum { WORKERS = 3, REQUESTS = 12 };

struct account {
    long balance;
};

struct request {
    struct request *next;
    struct account *account;
    size_t length;
    char text[32];
};

struct list {
    struct request *first;
    pthread_mutex_t lock;
};

struct server {
    struct list *queue;
    struct account *account;
    int answered;
};

static struct account the_account;
static struct list the_queue = {NULL, PTHREAD_MUTEX_INITIALIZER};
static struct server the_server = {&the_queue, &the_account, 0};

// Counts what waits. For people with a debugger, too.
int list_length(const struct list *list) {
    int n = 0;
    for (const struct request *r = list->first; r; r = r->next) n++;
    return n;
}

// Prints the state of it all. For people with a debugger.
int dump_state(const struct server *server, const char *when) {
    printf("%s: %d answered, %d wait\n", when, server->answered, list_length(server->queue));
    return server->answered;
}

static void put(struct list *queue, struct request *request) {
    pthread_mutex_lock(&queue->lock);
    request->next = queue->first;
    queue->first = request;
    pthread_mutex_unlock(&queue->lock);
}

static struct request *take(struct list *queue) {
    pthread_mutex_lock(&queue->lock);
    struct request *request = queue->first;
    if (request) queue->first = request->next;
    pthread_mutex_unlock(&queue->lock);
    return request;
}

static void fill(struct server *server) {
    static struct request requests[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        struct request *request = &requests[i];
        request->account = server->account;
        snprintf(request->text, sizeof request->text, "add %d", i * 7);
        request->length = strlen(request->text);
        put(server->queue, request);
    }
}

// Answers one request.
static void answer(struct server *server, struct request *request) {
    struct account *account = request->account;
    size_t len = request->length;
#line 120
    if (len > 0 && strncmp(request->text, "add ", 4) == 0) {
        long n = atol(request->text + 4);
        pthread_mutex_lock(&server->queue->lock);
        account->balance += n;
        server->answered++;
        pthread_mutex_unlock(&server->queue->lock);
        reprise_printf("added %ld, of %zu bytes\n", n, len);
    }
}

static void *work(void *argument) {
    struct server *server = argument;
    struct request *request;
    while ((request = take(server->queue))) answer(server, request);
    return NULL;
}

int main(int argc, char **argv) {
    struct server *server = &the_server;
    struct list *queue = server->queue;
    struct account *account = server->account;
    reprise_begin("load");
    fill(server);
    reprise_end();
    pthread_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) pthread_create(&workers[i], NULL, work, server);
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    printf("%d requests, balance %ld, %d left\n", server->answered, account->balance, list_length(queue));
    fflush(stdout);
    if (argc > 1) *(volatile int *)0 = atoi(argv[argc - 1]);
    return 0;
}
