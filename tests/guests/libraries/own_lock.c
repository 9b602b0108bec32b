// A library with a lock of its own, of atomic built-ins, and what that guards; and a count without a lock.
static int lock;
static long guarded, own, last[64];

// One more of each; which thread came before this one.
long own_lock_count(int thread) {
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) __builtin_ia32_pause();
    long before = last[0];
    guarded++;
    last[0] = thread;
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    __atomic_fetch_add(&own, 1, __ATOMIC_SEQ_CST);
    return before;
}

long own_lock_guarded(void) {
    return guarded;
}

long own_lock_own(void) {
    return own;
}
