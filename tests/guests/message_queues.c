// System V and POSIX messages, semaphores and shared memory inside one process.
#include "guest.h"
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

struct letter {
    long type;
    char text[32];
};

static int queue, semaphores;

static void *sender(void *unused) {
    (void)unused;
    for (int i = 0; i < 10; i++) {
        struct letter letter = {1 + i % 2, ""};
        snprintf(letter.text, sizeof letter.text, "letter %d", i);
        must(msgsnd(queue, &letter, sizeof letter.text, 0));
    }
    struct sembuf up = {0, 1, 0};
    must(semop(semaphores, &up, 1));
    return NULL;
}

int main(void) {
    queue = must(msgget(IPC_PRIVATE, 0600));
    semaphores = must(semget(IPC_PRIVATE, 1, 0600));
    must(semctl(semaphores, 0, SETVAL, 0));
    pthread_t thread = start(sender, NULL);
    for (int i = 0; i < 10; i++) {
        struct letter letter;
        expect(must(msgrcv(queue, &letter, sizeof letter.text, i < 5 ? 1 : 2, 0)) == sizeof letter.text);
        expect(letter.text[7] - '0' == (i < 5 ? 2 * i : 2 * (i - 5) + 1));
    }
    struct sembuf down = {0, -1, 0};
    must(semop(semaphores, &down, 1));
    finish(thread);
    struct msqid_ds about;
    must(msgctl(queue, IPC_STAT, &about));
    say("queue %d, last sent by %d at %ld\n", queue, about.msg_lspid, about.msg_stime);
    must(msgctl(queue, IPC_RMID, NULL));
    must(semctl(semaphores, 0, IPC_RMID));

    int segment = must(shmget(IPC_PRIVATE, 8192, 0600));
    int *view = (int *)must(shmat(segment, NULL, 0)), *again = (int *)must(shmat(segment, NULL, 0));
    must(shmctl(segment, IPC_RMID, NULL));
    view[5] = 1234;
    expect(again[5] == 1234 && view != again);
    say("segment %d at 0x%lx and 0x%lx\n", segment, (unsigned long)view, (unsigned long)again);
    must(shmdt(view));
    again[6] = 5;
    must(shmdt(again));

    char name[64];
    snprintf(name, sizeof name, "/guest-%d-%ld", getpid(), now_ns(CLOCK_REALTIME));
    mqd_t posix = mq_open(name, O_CREAT | O_RDWR, 0600, NULL);
    if (posix >= 0) {
        char text[8192];
        must(mq_send(posix, "low", 3, 1));
        must(mq_send(posix, "high", 4, 9));
        unsigned priority;
        expect(must(mq_receive(posix, text, sizeof text, &priority)) == 4 && priority == 9);
        must(mq_close(posix));
        must(mq_unlink(name));
    }
    int shared = must(shm_open(name, O_CREAT | O_RDWR, 0600));
    must(ftruncate(shared, 4096));
    char *page = (char *)must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0));
    must(shm_unlink(name));
    strcpy(page, "shared");
    expect(strcmp(page, "shared") == 0);
    say("posix %d at 0x%lx\n", shared, (unsigned long)page);
}
