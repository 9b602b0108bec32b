// Locks of the standard library: shared_mutex, shared_timed_mutex, recursive_timed_mutex, scoped_lock of many, call_once that fails first.
// run: 300
#include "guest.h"
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 300);
    std::shared_mutex table_lock;
    std::map<long, long> table;
    long found = 0;
    std::vector<std::thread> threads;
    for (long me = 0; me < 4; me++)
        threads.emplace_back([&, me] {
            long hits = 0;
            for (long i = 0; i < rounds; i++) {
                if (i % 10 == me) {
                    std::unique_lock write(table_lock);
                    table[i]++;
                } else {
                    std::shared_lock read(table_lock);
                    hits += table.count(i - 1);
                }
            }
            std::unique_lock write(table_lock);
            found += hits;
        });
    for (auto &t : threads) t.join();
    expect((long)table.size() == 4 * rounds / 10);
    say("found %ld\n", found);

    std::shared_timed_mutex timed;
    std::recursive_timed_mutex again;
    std::shared_lock first(timed);
    again.lock();
    again.lock();
    std::thread([&] {
        std::shared_lock second(timed, 1000s);
        expect(second.owns_lock() && !timed.try_lock());
        second.unlock();
        std::unique_lock third(timed, std::defer_lock);
        expect(!third.try_lock_for(1ms));
        expect(!again.try_lock_until(std::chrono::steady_clock::now() + 1ms));
    }).join();
    expect(again.try_lock());
    for (int i = 0; i < 3; i++) again.unlock();
    try {
        first.lock();
        expect(false);
    } catch (const std::system_error &e) {
        expect(e.code() == std::errc::resource_deadlock_would_occur);
    }

    // Three locks taken together, by threads that name them in different orders.
    std::mutex a, b, c;
    long sum = 0;
    threads.clear();
    for (int me = 0; me < 3; me++)
        threads.emplace_back([&, me] {
            for (long i = 0; i < rounds; i++) {
                std::mutex *in[] = {&a, &b, &c};
                std::scoped_lock all(*in[me], *in[(me + 1) % 3], *in[(me + 2) % 3]);
                sum++;
            }
        });
    for (auto &t : threads) t.join();
    expect(sum == 3 * rounds);
    say("sum %ld\n", sum);

    // The first callers fail: one after the other tries, until one has done it.
    std::once_flag once;
    std::atomic<int> tries{0}, failed{0};
    threads.clear();
    for (int me = 0; me < 6; me++)
        threads.emplace_back([&] {
            try {
                std::call_once(once, [&] {
                    if (++tries < 4) throw 1;
                });
            } catch (int) {
                failed++;
            }
        });
    for (auto &t : threads) t.join();
    expect(tries == 4 && failed == 3);
    say("tried %d times\n", tries.load());
}
