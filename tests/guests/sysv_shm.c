// System V shared memory: several views of a segment, its content while nobody is attached, protections, places, partial
// unmapping, errors.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/ipc.h>
#include <sys/shm.h>

enum { PAGE = 4096, SIZE = 5 * PAGE + 100 };
static sigjmp_buf back;

static void handler(int number) {
    (void)number;
    siglongjmp(back, 1);
}

static unsigned attached(int id) {
    struct shmid_ds about;
    must(shmctl(id, IPC_STAT, &about));
    expect(about.shm_segsz == SIZE);
    return about.shm_nattch;
}

int main(void) {
    int id = must(shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600));
    char *a = (char *)must(shmat(id, NULL, 0));
    for (int i = 0; i < SIZE; i++) expect(a[i] == 0);
    char *b = (char *)must(shmat(id, NULL, 0));
    expect(a != b && attached(id) == 2);
    strcpy(a + PAGE, "written in one view");
    expect(strcmp(b + PAGE, "written in one view") == 0);
    char *c = (char *)must(shmat(id, NULL, SHM_RDONLY));
    expect(strcmp(c + PAGE, "written in one view") == 0);
    struct sigaction action = {.sa_handler = handler};
    must(sigaction(SIGSEGV, &action, NULL));
    if (sigsetjmp(back, 1) == 0) {
        c[PAGE] = 'x';
        expect(false);
    }
    // Calls of the kernel write there as well.
    int tube[2];
    must(pipe(tube));
    expect(write(tube[1], "by the kernel", 13) == 13);
    expect(read(tube[0], b + 2 * PAGE, 13) == 13);
    expect(memcmp(c + 2 * PAGE, "by the kernel", 13) == 0);
    expect(write(tube[1], "no", 2) == 2);
    fails(EFAULT, read(tube[0], c, 2));
    say("views at 0x%lx, 0x%lx, 0x%lx\n", (unsigned long)a, (unsigned long)b, (unsigned long)c);
    // At a place of the program's choice.
    char *room = (char *)must(mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fails(EINVAL, (long)shmat(id, room, 0));
    fails(EINVAL, (long)shmat(id, room + 1, SHM_REMAP));
    must(munmap(room, 16 * PAGE));
    char *d = (char *)must(shmat(id, room + 4 * PAGE + 7, SHM_RND));
    expect(d == room + 4 * PAGE);
    must(mmap(room, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    char *e = (char *)must(shmat(id, room, SHM_REMAP));
    expect(e == room && strcmp(e + PAGE, "written in one view") == 0);
    e[4 * PAGE + 1] = 'e';
    must(shmdt(d));
    // A hole in it, another protection: what is left is detached as one.
    must(munmap(a + PAGE, PAGE));
    must(mprotect(a + 3 * PAGE, PAGE, PROT_READ));
    a[0] = 'a';
    must(shmdt(a));
    fails(EINVAL, shmdt(a));
    fails(EINVAL, shmdt(a + 1));
    expect(b[0] == 'a');
    must(shmdt(b));
    must(shmdt(c));
    say("%u attached\n", attached(id));
    must(shmdt(e));
    expect(attached(id) == 0);
    // It keeps its content; the place may be used again.
    a = (char *)must(shmat(id, NULL, 0));
    expect(strcmp(a + PAGE, "written in one view") == 0 && a[0] == 'a' && a[4 * PAGE + 1] == 'e');
    must(shmctl(id, IPC_RMID, NULL));
    // Removed, but there until it is detached.
    a[5] = 5;
    say("content %lx\n", hash_bytes(a, SIZE));
    must(shmdt(a));
    fails(EINVAL, (long)shmat(id, NULL, 0));
    fails(EINVAL, shmctl(id, IPC_RMID, NULL));
    fails(EINVAL, shmget(IPC_PRIVATE, 0, 0600));

    key_t key = (key_t)(0x52000000 | (getpid() & 0xffffff));
    fails(ENOENT, shmget(key, SIZE, 0600));
    int named = must(shmget(key, SIZE, IPC_CREAT | IPC_EXCL | 0600));
    fails(EEXIST, shmget(key, SIZE, IPC_CREAT | IPC_EXCL | 0600));
    fails(EINVAL, shmget(key, 2 * SIZE, 0600));
    expect(shmget(key, PAGE, 0600) == named);
    // One after the other, each at the place of the one before.
    uint64_t sum = 0;
    for (int i = 0; i < 20; i++) {
        int other = must(shmget(IPC_PRIVATE, PAGE * (1 + i % 3), 0600));
        uint64_t *p = (uint64_t *)must(shmat(other, NULL, 0));
        must(shmctl(other, IPC_RMID, NULL));
        expect(p[3] == 0);
        p[3] = (uint64_t)now_ns(CLOCK_MONOTONIC);
        sum = mix(sum + p[3]);
        must(shmdt(p));
    }
    must(shmctl(named, IPC_RMID, NULL));
    say("sum %lu\n", sum);
}
