// Two threads deposit money, one coin at a time. Now and then a coin is lost.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define COINS 40

static struct {
    pthread_mutex_t lock;
    long balance;
} account = {PTHREAD_MUTEX_INITIALIZER, 0};

static void audit(long amount) {
    for (volatile long i = 0; i < amount * 2000; i++) {
    }
}

static void deposit(long amount) {
    long before = account.balance;
    audit(amount);
    pthread_mutex_lock(&account.lock);
    account.balance = before + amount;
    pthread_mutex_unlock(&account.lock);
}

static void *customer(void *arg) {
    for (int i = 0; i < COINS; i++) deposit(1);
    return arg;
}

int main(void) {
    pthread_t a, b;
    pthread_create(&a, NULL, customer, NULL);
    pthread_create(&b, NULL, customer, NULL);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    printf("the balance is %ld\n", account.balance);
    if (account.balance != 2 * COINS) abort();
    return 0;
}
