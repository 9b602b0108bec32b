// C++ threads: std::thread, mutex, condition variable, async, future, promise, atomic wait-free counters, thread-local destructors.
// variant: static -static
// run: 2000
#include "guest.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

static std::atomic<long> destroyed{0};

struct Local {
    long touched = 0;
    ~Local() { destroyed += touched; }
};

static thread_local Local local;

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 2000);
    std::mutex lock;
    std::condition_variable changed;
    std::map<std::string, long> table;
    std::shared_mutex shared;
    std::vector<std::thread> threads;
    long turn = 0;
    uint64_t order = 0;
    for (long me = 0; me < 4; me++)
        threads.emplace_back([&, me] {
            for (long i = 0; i < rounds; i++) {
                {
                    std::unique_lock<std::mutex> held(lock);
                    table["key " + std::to_string(i % 17)] += me;
                    order = mix(order + me);
                }
                std::shared_lock<std::shared_mutex> reading(shared);
                local.touched++;
            }
            std::unique_lock<std::mutex> held(lock);
            changed.wait(held, [&] { return turn == me; });
            turn++;
            changed.notify_all();
        });
    for (auto &t : threads) t.join();
    expect(destroyed == 4 * rounds && turn == 4);
    std::vector<std::future<uint64_t>> futures;
    for (int i = 0; i < 6; i++) futures.push_back(std::async(std::launch::async, [i] { return burn(10000 + i) + gettid_raw(); }));
    uint64_t sum = 0;
    for (auto &f : futures) sum += f.get();
    std::promise<int> promise;
    auto future = promise.get_future();
    expect(future.wait_for(std::chrono::milliseconds(2)) == std::future_status::timeout);
    std::thread giver([&] { promise.set_value(42); });
    expect(future.get() == 42);
    giver.join();
    auto now = std::chrono::system_clock::now().time_since_epoch().count();
    say("order %lu, sum %lu, at %ld\n", order, sum, (long)now);
}
