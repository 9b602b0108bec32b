// Threads that print by std::cout and std::cerr, which share the streams of C.
#include "guest.h"
#include <iostream>
#include <mutex>
#include <thread>
#include <vector>

static std::mutex lock;
static uint64_t order, racy;

static void body(int me, bool prints) {
    for (int i = 0; i < 30; i++) {
        racy = mix(racy + me);
        if (prints && (me + i) % 3) {
            for (int n = 0; n < (me * i) % 6; n++) std::cout << "a line of thread's by cout\n";
            if (i % 7 == me) std::cout << me << std::endl;
            if (i % 5 == me) std::cerr << "an error of thread's\n";
        }
        std::lock_guard<std::mutex> guard(lock);
        order = mix(order + me);
        if (prints && i % 4 == me) std::cout << "locked\n" << std::flush;
    }
}

int main(int argc, char **) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back(body, i, argc > 1);
    for (auto &t : threads) t.join();
    std::cout << "order " << order << " memory " << racy << std::endl;
}
