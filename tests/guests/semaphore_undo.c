// SEM_UNDO: what a process did to semaphores is taken back at its end, however it ends.
#include "guest.h"
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/wait.h>

static int set;

static void *taker(void *unused) {
    (void)unused;
    must(semop(set, (struct sembuf[]){{1, -1, SEM_UNDO}}, 1));
    return NULL;
}

int main(void) {
    set = must(semget(IPC_PRIVATE, 2, 0600));
    must(semctl(set, 0, SETVAL, 3));
    must(semctl(set, 1, SETVAL, 3));
    for (int way = 0; way < 3; way++) {
        pid_t child = must(fork());
        if (child == 0) {
            must(semop(set, (struct sembuf[]){{0, -2, SEM_UNDO}, {1, 4, SEM_UNDO}, {1, -1, 0}}, 3));
            expect(semctl(set, 0, GETVAL) == 1);
            if (way == 0) _exit(0);
            if (way == 1) raise(SIGKILL);
            // What was done and taken back by itself.
            must(semop(set, (struct sembuf[]){{0, 2, SEM_UNDO}}, 1));
            _exit(0);
        }
        int status;
        expect(waitpid(child, &status, 0) == child);
        expect(way == 1 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
        expect(semctl(set, 0, GETVAL) == 3);
        // +4 is taken back, -1 is not; but no value goes below zero.
        say("second after way %d: %d, by %d\n", way, semctl(set, 1, GETVAL), semctl(set, 0, GETPID));
        expect(semctl(set, 1, GETVAL) == 2);
        must(semctl(set, 1, SETVAL, 3));
    }
    // A thread's end takes nothing back: the process has not ended.
    finish(start(taker, NULL));
    expect(semctl(set, 1, GETVAL) == 2);
    // A value that is set forgets what there was to take back.
    pid_t child = must(fork());
    if (child == 0) {
        must(semop(set, (struct sembuf[]){{0, -1, SEM_UNDO}}, 1));
        must(semctl(set, 0, SETVAL, 10));
        _exit(0);
    }
    must(waitpid(child, NULL, 0));
    expect(semctl(set, 0, GETVAL) == 10);
    must(semctl(set, 0, IPC_RMID));
}
