// RLIMIT_AS: mappings, the heap, stacks of threads and growth end in ENOMEM, and come back when there is room again.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <sys/resource.h>

static void *empty(void *p) { return p; }

int main(void) {
    struct rlimit old, small;
    must(getrlimit(RLIMIT_AS, &old));
    size_t block = 256 << 20;
    char *p = (char *)must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    p[0] = 'p';
    // How much there is now is for the kernel to say; less than that is no limit for what is there already.
    small = (struct rlimit){1 << 20, old.rlim_max};
    must(setrlimit(RLIMIT_AS, &small));
    fails(ENOMEM, mmap(NULL, block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fails(ENOMEM, mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    fails(ENOMEM, mremap(p, 4096, 1 << 20, MREMAP_MAYMOVE));
    int fd = must(open("/proc/self/exe", O_RDONLY));
    fails(ENOMEM, mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
    expect(malloc(block) == NULL && errno == ENOMEM);
    void *end = sbrk(0);
    fails(ENOMEM, sbrk(64 << 20));
    expect(sbrk(0) == end);
    pthread_t thread;
    pthread_attr_t attributes;
    ok(pthread_attr_init(&attributes));
    ok(pthread_attr_setstacksize(&attributes, 64 << 20));
    expect(pthread_create(&thread, &attributes, empty, NULL) == EAGAIN);
    // What is there can be used, changed, and given back.
    expect(p[0] == 'p');
    must(mprotect(p, 4096, PROT_READ));
    must(munmap(p, 4096));
    must(setrlimit(RLIMIT_AS, &old));
    p = (char *)must(mmap(NULL, block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    p[block - 1] = 1;
    ok(pthread_create(&thread, &attributes, empty, &old));
    expect(finish(thread) == &old);
    say("limit was %lu\n", (unsigned long)old.rlim_cur);
}
