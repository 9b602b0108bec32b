// Shared memory with a process that is not recorded.
//   shares_with_others KIND PATH          shows what is in the memory: a posix object, a mapped file, a sysv segment
//   shares_with_others KIND PATH number   puts a number there, says so, and stays until its input ends
// libraries: -lrt
#include "guest.h"
#include <sys/shm.h>

static volatile int *memory(const char *kind, const char *path) {
    if (strcmp(kind, "sysv") == 0) {
        int id = must(shmget(must(ftok(path, 7)), 4096, IPC_CREAT | 0600));
        return must(shmat(id, NULL, 0));
    }
    const char *name = strrchr(path, '/');
    int fd = must(strcmp(kind, "posix") == 0 ? shm_open(name, O_RDWR | O_CREAT, 0600) : open(path, O_RDWR));
    must(ftruncate(fd, 4096));
    volatile int *p = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    must(close(fd));
    return p;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        say("nothing to share\n");
        return 0;
    }
    volatile int *p = memory(argv[1], argv[2]);
    if (argc == 3) {
        say("%d is there\n", *p);
        if (strcmp(argv[1], "sysv") == 0) {
            struct shmid_ds about;
            int id = must(shmget(must(ftok(argv[2], 7)), 0, 0));
            must(shmctl(id, IPC_STAT, &about));
            if (about.shm_nattch == 1) must(shmctl(id, IPC_RMID, NULL));
        }
        return 0;
    }
    *p = atoi(argv[3]);
    say("ready\n");
    char c;
    expect(read(0, &c, 1) == 0);
    if (strcmp(argv[1], "posix") == 0) must(shm_unlink(strrchr(argv[2], '/')));
    if (strcmp(argv[1], "sysv") == 0) must(shmctl(must(shmget(must(ftok(argv[2], 7)), 0, 0)), IPC_RMID, NULL));
}
