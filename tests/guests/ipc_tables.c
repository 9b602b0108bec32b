// What System V IPC says of itself: limits, use, entries by their place in the kernel's tables, and changes of owner.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
    struct seminfo *info;
};

int main(void) {
    int queue = must(msgget(IPC_PRIVATE, 0600)), set = must(semget(IPC_PRIVATE, 5, 0640)), segment = must(shmget(IPC_PRIVATE, 5000, 0600));
    struct msginfo m;
    struct seminfo s;
    struct shminfo h;
    struct shm_info used;
    int last = must(msgctl(queue, IPC_INFO, (struct msqid_ds *)&m));
    expect(m.msgmax > 0 && m.msgmnb > 0);
    must(msgctl(queue, MSG_INFO, (struct msqid_ds *)&m));
    expect(m.msgpool >= 1);
    say("messages: last %d, limit %d, %d queues\n", last, m.msgmax, m.msgpool);
    last = must(semctl(0, 0, IPC_INFO, (union semun){.info = &s}));
    expect(s.semmsl > 0);
    say("semaphores: last %d, %d in a set, %d in all\n", last, s.semmsl, s.semmns);
    must(semctl(0, 0, SEM_INFO, (union semun){.info = &s}));
    expect(s.semusz >= 1);
    last = must(shmctl(0, IPC_INFO, (struct shmid_ds *)&h));
    must(shmctl(0, SHM_INFO, (struct shmid_ds *)&used));
    expect(used.used_ids >= 1);
    say("segments: last %d, most %lu, %d used of %lu pages\n", last, h.shmmni, used.used_ids, used.shm_tot);
    // By the place in the table, found by looking at all.
    struct semid_ds about;
    bool found = false;
    last = must(semctl(0, 0, SEM_INFO, (union semun){.info = &s}));
    for (int i = 0; i <= last; i++) found |= semctl(i, 0, SEM_STAT, (union semun){.buf = &about}) == set && about.sem_nsems == 5;
    expect(found);
    struct shmid_ds state;
    found = false;
    last = must(shmctl(0, SHM_INFO, (struct shmid_ds *)&used));
    for (int i = 0; i <= last; i++) found |= shmctl(i, SHM_STAT, &state) == segment && state.shm_segsz == 5000;
    expect(found);
    struct msqid_ds letters;
    found = false;
    last = must(msgctl(0, MSG_INFO, (struct msqid_ds *)&m));
    for (int i = 0; i <= last; i++) found |= msgctl(i, MSG_STAT, &letters) == queue;
    expect(found);
    must(semctl(set, 0, IPC_STAT, (union semun){.buf = &about}));
    expect((about.sem_perm.mode & 0777) == 0640);
    about.sem_perm.mode = 0600;
    must(semctl(set, 0, IPC_SET, (union semun){.buf = &about}));
    must(semctl(set, 0, IPC_STAT, (union semun){.buf = &about}));
    expect((about.sem_perm.mode & 0777) == 0600);
    unsigned short values[5] = {1, 2, 3, 4, 5}, again[7] = {9, 9, 9, 9, 9, 9, 9};
    must(semctl(set, 0, SETALL, (union semun){.array = values}));
    must(semctl(set, 0, GETALL, (union semun){.array = again}));
    expect(memcmp(values, again, sizeof values) == 0 && again[5] == 9);
    must(msgctl(queue, IPC_STAT, &letters));
    letters.msg_qbytes = 100;
    must(msgctl(queue, IPC_SET, &letters));
    struct { long type; char text[200]; } letter = {1, ""};
    fails(EINVAL, msgctl(queue, 99, &letters));
    expect(msgsnd(queue, &letter, 60, IPC_NOWAIT) == 0);
    fails(EAGAIN, msgsnd(queue, &letter, 60, IPC_NOWAIT));
    fails(EFAULT, msgctl(queue, IPC_STAT, (struct msqid_ds *)8));
    fails(EFAULT, semctl(set, 0, GETALL, (union semun){.array = (unsigned short *)8}));
    // A key of its own, made once.
    key_t key = ftok("/proc/self/exe", 1 + (int)(now_ns(CLOCK_MONOTONIC) & 127)) ^ getpid() << 8;
    int keyed = must(semget(key, 1, IPC_CREAT | IPC_EXCL | 0600));
    fails(EEXIST, semget(key, 1, IPC_CREAT | IPC_EXCL | 0600));
    fails(EINVAL, semget(key, 2, 0600));
    expect(must(semget(key, 0, 0600)) == keyed);
    must(semctl(keyed, 0, IPC_RMID));
    fails(ENOENT, semget(key, 1, 0600));
    must(semctl(set, 0, IPC_RMID));
    must(msgctl(queue, IPC_RMID, NULL));
    must(shmctl(segment, IPC_RMID, NULL));
    fails(EINVAL, shmctl(segment, IPC_STAT, &state));
}
