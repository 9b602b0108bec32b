// Shared pointers, optimised: whoever lets go of the last reference ends the object, and that is in what is said. Before a thread takes one from the
// counts it looks whether it is alone, by a plain load of both, through whatever register the compiler has for them.
// flags: -O2
// run: 200
#include "guest.h"
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

static thread_local uint64_t own;

struct Item {
    std::string text;
    explicit Item(std::string t) : text(std::move(t)) {}
    ~Item() { own = mix(own * 31 + text.size()); }
};

static std::mutex mutex;
static std::condition_variable changed;
static std::deque<std::shared_ptr<Item>> queue;
static bool closed;

// The consumer may have it, and let go of it, before this does.
static uint64_t produce(int me, long n) {
    for (long i = 0; i < n; i++) {
        auto item = std::make_shared<Item>(std::string(20 + (i + me) % 50, 'x'));
        {
            std::lock_guard<std::mutex> lock(mutex);
            queue.push_back(item);
        }
        changed.notify_one();
    }
    return own;
}

static uint64_t consume() {
    std::string all;
    for (;;) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [] { return closed || !queue.empty(); });
        if (queue.empty()) return mix(own + all.size());
        auto item = queue.front();
        queue.pop_front();
        lock.unlock();
        all += item->text + " ";
    }
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 200);
    std::vector<std::future<uint64_t>> consumers, producers;
    for (int i = 0; i < 2; i++) consumers.push_back(std::async(std::launch::async, consume));
    for (int i = 0; i < 3; i++) producers.push_back(std::async(std::launch::async, produce, i, rounds));
    for (auto &p : producers) say("%lu\n", p.get());
    {
        std::lock_guard<std::mutex> lock(mutex);
        closed = true;
    }
    changed.notify_all();
    for (auto &c : consumers) say("%lu\n", c.get());
}
