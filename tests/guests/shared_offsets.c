// Several threads read from and append to the same descriptors: who got which part differs from run to run.
#include "guest.h"

static int in, out;

static void *body(void *p) {
    char part[40];
    uint64_t hash = 0;
    for (;;) {
        ssize_t n = must(read(in, part, sizeof part));
        if (n == 0) break;
        hash = mix(hash + hash_bytes(part, n));
        int length = snprintf(part, sizeof part, "%ld %lu\n", (long)(intptr_t)p, hash % 1000000);
        expect(write(out, part, length) == length);
    }
    return (void *)hash;
}

int main(void) {
    char in_name[] = "inXXXXXX", out_name[] = "outXXXXXX";
    in = must(mkstemp(in_name));
    char text[40000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)mix(i);
    expect(write(in, text, sizeof text) == sizeof text);
    must(lseek(in, 0, SEEK_SET));
    close(must(mkstemp(out_name)));
    out = must(open(out_name, O_RDWR | O_APPEND));
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++) threads[i] = start(body, (void *)i);
    for (int i = 0; i < 4; i++) say("thread %d: %lu\n", i, (unsigned long)finish(threads[i]));
    must(lseek(out, 0, SEEK_SET));
    uint64_t hash = 0;
    for (ssize_t n; (n = must(read(out, text, sizeof text))) > 0;) hash = mix(hash + hash_bytes(text, n));
    say("what they wrote: %lu\n", hash);
    must(unlink(in_name));
    must(unlink(out_name));
}
