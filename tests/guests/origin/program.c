// Two threads with thread-local variables, of the program and of its library.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

int count(int by);
__thread long own = 7;

static void seen(int number) {
    printf("%d: %ld\n", number, own); // here all is set
}

static void *work(void *argument) {
    int number = *(int *)argument;
    own = 100 + number;
    count(number);
    close(-1);
    if (errno == EBADF) errno = number;
    seen(number);
    return argument;
}

int main(void) {
    int numbers[2] = {10, 20};
    pthread_t thread;
    count(1);
    if (pthread_create(&thread, NULL, work, &numbers[0])) return 1;
    pthread_join(thread, NULL);
    work(&numbers[1]);
    return 0;
}
