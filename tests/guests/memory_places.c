// Says where words of its data, heap and stack are, and never looks at them again: for tests that change one bit there in a replay,
// which only a hash of the memory can notice.
#include "guest.h"

static uint64_t in_data[64] = {1, 2, 3};
static uint64_t in_bss[64];

int main(void) {
    uint64_t on_stack[64];
    uint64_t *on_heap = (uint64_t *)malloc(512);
    uint64_t *mapped = (uint64_t *)must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int i = 0; i < 64; i++) in_data[i] = in_bss[i] = on_stack[i] = on_heap[i] = mapped[i] = mix(i);
    __asm__ volatile("" : : "r"(on_stack), "r"(on_heap), "r"(mapped) : "memory");
    say("data 0x%lx\n", (unsigned long)&in_data[20]);
    say("bss 0x%lx\n", (unsigned long)&in_bss[20]);
    say("heap 0x%lx\n", (unsigned long)&on_heap[20]);
    say("stack 0x%lx\n", (unsigned long)&on_stack[20]);
    say("mapped 0x%lx\n", (unsigned long)&mapped[20]);
    for (int i = 0; i < 50; i++) getppid();
    __asm__ volatile("" : : "r"(on_stack), "r"(on_heap), "r"(mapped) : "memory");
    _exit(0);
}
