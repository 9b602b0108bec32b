// Asking threads to stop (C++20): jthread, stop_token, stop_callback, condition_variable_any that waits for a lock, a word or a stop.
// flags: -std=gnu++20
#include <condition_variable>
#include <deque>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <thread>
#include <vector>
// Last: C++20 has functions of the name `ok`.
#include "guest.h"

int main() {
    // Workers at a queue, until they are asked to stop; what is left in the queue then is the remainder.
    std::mutex lock;
    std::condition_variable_any changed;
    std::deque<int> queue;
    long taken = 0, stopped = 0;
    {
        std::vector<std::jthread> workers;
        for (int i = 0; i < 3; i++)
            workers.emplace_back([&](std::stop_token stop) {
                std::unique_lock held(lock);
                for (;;) {
                    if (!changed.wait(held, stop, [&] { return !queue.empty(); })) {
                        stopped++;
                        return;
                    }
                    queue.pop_front();
                    taken++;
                }
            });
        for (int i = 0; i < 200; i++) {
            std::unique_lock held(lock);
            queue.push_back(i);
            changed.notify_one();
        }
        workers[0].request_stop();
    }
    expect(stopped == 3 && taken + (long)queue.size() == 200);
    say("taken %ld, left %zu\n", taken, queue.size());

    // Callbacks run in the thread that asks, or at once where it was asked before.
    std::stop_source source;
    std::thread::id ran_in;
    int calls = 0;
    std::stop_callback first(source.get_token(), [&] {
        ran_in = std::this_thread::get_id();
        calls++;
    });
    {
        std::stop_callback forgotten(source.get_token(), [&] { calls += 100; });
    }
    std::thread asks([&] {
        expect(source.request_stop());
        expect(!source.request_stop());
        expect(ran_in == std::this_thread::get_id());
    });
    asks.join();
    std::stop_callback late(source.get_token(), [&] { calls += 10; });
    expect(calls == 11);
    std::stop_token none;
    expect(!none.stop_possible() && source.get_token().stop_requested());

    // A shared lock and a condition; a stop without a predicate that ever holds.
    std::shared_mutex shared;
    std::condition_variable_any bell;
    bool rung = false;
    std::jthread reader([&] {
        std::shared_lock held(shared);
        bell.wait(held, [&] { return rung; });
    });
    std::jthread never([&](std::stop_token stop) {
        std::shared_lock held(shared);
        expect(!bell.wait(held, stop, [] { return false; }));
        expect(stop.stop_requested());
    });
    {
        std::unique_lock held(shared);
        rung = true;
    }
    bell.notify_all();
    reader.join();
    say("calls %d\n", calls);
}
