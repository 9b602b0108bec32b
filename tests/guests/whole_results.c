// Calls of milliseconds that end early when a signal waits, while another thread waits for its turn: a directory's list, random bytes, zeros of the
// memory device. How many calls it takes is the same always.
#include "guest.h"
#include <dirent.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define ROUNDS 20
#define FILES 3000
static char buffer[16 << 20];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool over;

static void *waits(void *p) {
    for (bool ends = false; !ends;) {
        pthread_mutex_lock(&lock);
        ends = over;
        pthread_mutex_unlock(&lock);
    }
    return p;
}

static void *body(void *p) {
    char directory[] = "/tmp/guest-whole-XXXXXX";
    expect(mkdtemp(directory));
    int fd = open(directory, O_RDONLY | O_DIRECTORY);
    expect(fd >= 0);
    for (int i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d", i);
        int made = openat(fd, name, O_CREAT | O_WRONLY, 0600);
        expect(made >= 0 && close(made) == 0);
    }
    long lists = 0, randoms = 0, zeros = 0;
    int zero = open("/dev/zero", O_RDONLY);
    expect(zero >= 0);
    for (int i = 0; i < ROUNDS; i++) {
        expect(lseek(fd, 0, SEEK_SET) == 0);
        while (syscall(SYS_getdents64, fd, buffer, sizeof buffer) > 0) lists++;
        for (size_t done = 0; done < 1 << 20; randoms++) {
            ssize_t n = getrandom(buffer + done, (1 << 20) - done, 0);
            expect(n > 0);
            done += n;
        }
        for (size_t done = 0; done < sizeof buffer; zeros++) {
            ssize_t n = read(zero, buffer + done, sizeof buffer - done);
            expect(n > 0);
            done += n;
        }
    }
    for (int i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d", i);
        expect(unlinkat(fd, name, 0) == 0);
    }
    expect(rmdir(directory) == 0);
    say("%ld lists, %ld times random bytes, %ld times zeros\n", lists, randoms, zeros);
    pthread_mutex_lock(&lock);
    over = true;
    pthread_mutex_unlock(&lock);
    return p;
}

int main(void) {
    pthread_t other = start(waits, NULL);
    finish(start(body, NULL));
    finish(other);
    return 0;
}
