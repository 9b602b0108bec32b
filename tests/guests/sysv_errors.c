// System V semaphores and messages: values of a whole set, waits that end by time, by a signal and by removal, what doesn't fit.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
};

struct letter {
    long type;
    char text[64];
};

static int set, queue;
static volatile sig_atomic_t count;

static void handler(int number) {
    (void)number;
    count++;
}

static void *waits_for_set(void *unused) {
    (void)unused;
    struct sembuf down = {2, -100, 0};
    fails(EIDRM, semop(set, &down, 1));
    return NULL;
}

static void *waits_for_letter(void *unused) {
    (void)unused;
    struct letter letter;
    expect(msgrcv(queue, &letter, sizeof letter.text, 77, 0) == -1 && (errno == EIDRM || errno == EINVAL));
    return NULL;
}

int main(void) {
    set = must(semget(IPC_PRIVATE, 4, 0600));
    unsigned short values[4] = {1, 2, 3, 4}, found[4] = {0};
    must(semctl(set, 0, SETALL, (union semun){.array = values}));
    must(semctl(set, 0, GETALL, (union semun){.array = found}));
    expect(memcmp(values, found, sizeof values) == 0);
    struct sembuf both[] = {{0, -1, 0}, {3, 5, SEM_UNDO}};
    must(semop(set, both, 2));
    expect(semctl(set, 3, GETVAL) == 9 && semctl(set, 0, GETVAL) == 0);
    // All or nothing.
    struct sembuf not_now[] = {{1, -2, IPC_NOWAIT}, {0, -1, IPC_NOWAIT}};
    fails(EAGAIN, semop(set, not_now, 2));
    expect(semctl(set, 1, GETVAL) == 2);
    struct sembuf down = {0, -1, 0};
    fails(EAGAIN, semtimedop(set, &down, 1, &(struct timespec){.tv_nsec = 2000000}));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    must(sigaction(SIGALRM, &action, NULL));
    alarm_every(3000);
    // Never made again, whatever the handler's flags.
    fails(EINTR, semop(set, &down, 1));
    alarm_every(0);
    expect(count > 0);
    fails(EFBIG, semop(set, &(struct sembuf){4, 1, 0}, 1));
    fails(ERANGE, semop(set, &(struct sembuf){0, 32767, 0}, 1) == 0 ? semop(set, &(struct sembuf){0, 1, 0}, 1) : -1);
    fails(EFAULT, semop(set, (struct sembuf *)8, 1));
    fails(EINVAL, semop(-1, &down, 1));
    fails(E2BIG, semop(set, both, 1000000));
    struct semid_ds about;
    must(semctl(set, 0, IPC_STAT, (union semun){.buf = &about}));
    expect(about.sem_nsems == 4);
    say("set last changed at %ld by %d\n", about.sem_ctime, semctl(set, 3, GETPID));
    pthread_t thread = start(waits_for_set, NULL);
    while (semctl(set, 2, GETNCNT) == 0) sched_yield();
    must(semctl(set, 0, IPC_RMID));
    finish(thread);

    queue = must(msgget(IPC_PRIVATE, 0600));
    struct letter letter = {5, "something to read"};
    fails(ENOMSG, msgrcv(queue, &letter, sizeof letter.text, 0, IPC_NOWAIT));
    must(msgsnd(queue, &letter, sizeof letter.text, 0));
    fails(E2BIG, msgrcv(queue, &letter, 4, 0, 0));
    expect(msgrcv(queue, &letter, 4, 0, MSG_NOERROR) == 4 && letter.type == 5);
    must(msgsnd(queue, &(struct letter){9, "nine"}, 5, 0));
    must(msgsnd(queue, &(struct letter){3, "three"}, 6, 0));
    memset(&letter, 'x', sizeof letter);
    expect(msgrcv(queue, &letter, sizeof letter.text, -5, 0) == 6 && letter.type == 3 && letter.text[6] == 'x');
    expect(msgrcv(queue, &letter, sizeof letter.text, 3, MSG_EXCEPT) == 5 && letter.type == 9);
    fails(EINVAL, msgsnd(queue, &(struct letter){0, ""}, 4, 0));
    fails(EINVAL, msgsnd(queue, &letter, 1 << 24, 0));
    fails(EFAULT, msgsnd(queue, (void *)8, 4, 0));
    count = 0;
    alarm_every(3000);
    fails(EINTR, msgrcv(queue, &letter, sizeof letter.text, 0, 0));
    alarm_every(0);
    expect(count > 0);
    // Full.
    int sent = 0;
    while (msgsnd(queue, &letter, sizeof letter.text, IPC_NOWAIT) == 0) sent++;
    expect(errno == EAGAIN && sent > 0);
    struct msqid_ds state;
    must(msgctl(queue, IPC_STAT, &state));
    say("%lu messages, sent by %d\n", state.msg_qnum, state.msg_lspid);
    thread = start(waits_for_letter, NULL);
    must(msgctl(queue, IPC_RMID, NULL));
    // It waits by now, or finds that the queue is gone.
    finish(thread);
}
