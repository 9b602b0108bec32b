// C++ under a sanitizer: containers, exceptions, threads; or a read behind a vector's end, or two threads that race.
#include "guest.h"
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::mutex lock;
static std::map<std::string, int> seen;
static int unlocked;

static void work(int me, bool race) {
    for (int i = 0; i < 200; i++) {
        std::string key = "key " + std::to_string(i % 17);
        try {
            if (i % 50 == 49) throw std::runtime_error(key);
            std::lock_guard<std::mutex> hold(lock);
            seen[key] += me;
        } catch (const std::exception &e) {
            std::lock_guard<std::mutex> hold(lock);
            seen[e.what()]--;
        }
        if (race) unlocked++;
    }
}

int main(int argc, char **argv) {
    std::string how = argc > 1 ? argv[1] : "clean";
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) threads.emplace_back(work, i, how == "race");
    for (auto &t : threads) t.join();
    unsigned long sum = 0;
    for (auto &[key, n] : seen) sum = sum * 31 + n + key.size();
    say("sum %lu\n", sum);
    if (how == "overflow") {
        auto v = std::make_unique<std::vector<int>>(10, 1);
        volatile int *p = v->data();
        say("behind the end %d\n", p[10] == 12345);
    }
    say("done %d\n", unlocked >= 0);
}
