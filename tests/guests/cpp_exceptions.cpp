// Exceptions: across many frames, out of threads through futures, out of a signal handler's interrupted neighbourhood, rethrown, nested.
// variant: static -static
// run: 300
#include "guest.h"
#include <exception>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<long> unwound{0};
static volatile sig_atomic_t ticks;

struct Guard {
    ~Guard() { unwound++; }
};

__attribute__((noinline)) static long descend(int depth, long value) {
    Guard guard;
    if (depth == 0) throw std::runtime_error("bottom " + std::to_string(value));
    return descend(depth - 1, value) + 1;
}

static void handler(int) { ticks = ticks + 1; }

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 300);
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    must(sigaction(SIGALRM, &action, NULL));
    struct itimerval every = {{0, 500}, {0, 500}}, none = {};
    must(setitimer(ITIMER_REAL, &every, NULL));
    std::atomic<long> caught{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            for (long i = 0; i < rounds; i++) {
                try {
                    try {
                        descend(i % 30, i * t);
                    } catch (const std::logic_error &) {
                        expect(false);
                    } catch (...) {
                        std::throw_with_nested(std::out_of_range("outer"));
                    }
                } catch (const std::exception &e) {
                    try {
                        std::rethrow_if_nested(e);
                    } catch (const std::runtime_error &inner) {
                        expect(std::string(inner.what()) == "bottom " + std::to_string(i * t));
                        caught++;
                    }
                }
            }
        });
    for (auto &t : threads) t.join();
    auto future = std::async(std::launch::async, [] { return descend(5, 7); });
    try {
        future.get();
        expect(false);
    } catch (const std::runtime_error &e) {
        expect(std::string(e.what()) == "bottom 7");
    }
    must(setitimer(ITIMER_REAL, &none, NULL));
    expect(caught == 4 * rounds);
    say("unwound %ld frames, %d ticks\n", (long)unwound, (int)ticks);
}
