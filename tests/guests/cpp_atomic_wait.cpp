// Waiting for atomics (C++20): wait and notify of values of all sizes, atomic_flag, latch, barrier, counting_semaphore.
// flags: -std=gnu++20
// run: 200
#include <atomic>
#include <barrier>
#include <chrono>
#include <latch>
#include <semaphore>
#include <thread>
#include <vector>
// Last: C++20 has functions of the name `ok`.
#include "guest.h"

// Two threads hand a value to and fro.
template <class T> static void ping_pong(const char *what, long rounds) {
    std::atomic<T> turn{0};
    std::jthread other([&] {
        for (long i = 0; i < rounds; i++) {
            turn.wait(0);
            turn = 0;
            turn.notify_one();
        }
    });
    for (long i = 0; i < rounds; i++) {
        turn = 1;
        turn.notify_one();
        turn.wait(1);
    }
    say("%s: done\n", what);
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 200);
    ping_pong<char>("char", rounds);
    ping_pong<int>("int", rounds);
    ping_pong<long>("long", rounds);

    std::atomic_flag door;
    std::atomic<int> through{0};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 5; i++)
            threads.emplace_back([&] {
                door.wait(false);
                through++;
            });
        expect(through == 0);
        door.test_and_set();
        door.notify_all();
    }
    expect(through == 5);

    std::latch ready(5), go(1);
    long phases = 0;
    uint64_t order = 0;
    std::barrier phase(4, [&]() noexcept { phases++; });
    std::counting_semaphore<3> room(2);
    std::binary_semaphore lock(1);
    std::atomic<int> inside{0};
    {
        std::vector<std::jthread> threads;
        for (int me = 0; me < 4; me++)
            threads.emplace_back([&, me] {
                ready.count_down();
                go.wait();
                for (long i = 0; i < rounds / 10; i++) {
                    room.acquire();
                    expect(++inside <= 2);
                    std::this_thread::yield();
                    --inside;
                    room.release();
                    lock.acquire();
                    order = mix(order + me);
                    lock.release();
                    phase.arrive_and_wait();
                }
                phase.arrive_and_drop();
            });
        ready.arrive_and_wait();
        go.count_down();
    }
    expect(phases >= rounds / 10);
    room.acquire();
    room.acquire();
    expect(!room.try_acquire());
    expect(!room.try_acquire_for(std::chrono::milliseconds(1)));
    say("order %lu\n", order);
}
