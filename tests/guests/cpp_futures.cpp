// Exceptions that travel between threads: through futures, promises, packaged tasks and exception pointers; broken promises; shared futures.
#include "guest.h"
#include <atomic>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Odd : std::runtime_error {
    int number;
    explicit Odd(int n) : std::runtime_error("odd: " + std::to_string(n)), number(n) {}
};

static int half(int n) {
    if (n % 2) throw Odd(n);
    return n / 2;
}

template <class F> static std::string reason(F &&f) {
    try {
        f();
        return "none";
    } catch (const Odd &e) {
        return e.what();
    } catch (const std::future_error &e) {
        return e.code() == std::future_errc::broken_promise              ? "broken promise"
               : e.code() == std::future_errc::future_already_retrieved  ? "already retrieved"
               : e.code() == std::future_errc::promise_already_satisfied ? "already satisfied"
                                                                         : "no state";
    } catch (const std::nested_exception &e) {
        return "nested";
    } catch (...) {
        return "something else";
    }
}

int main() {
    std::vector<std::future<int>> futures;
    for (int i = 0; i < 12; i++) futures.push_back(std::async(i % 3 ? std::launch::async : std::launch::deferred, half, i));
    for (int i = 0; i < 12; i++) {
        std::string why = reason([&] { expect(futures[i].get() == i / 2); });
        expect(why == (i % 2 ? "odd: " + std::to_string(i) : "none"));
    }
    say("async: done\n");

    std::promise<int> broken;
    auto lost = broken.get_future();
    expect(reason([&] { (void)broken.get_future(); }) == "already retrieved");
    { std::promise<int> gone(std::move(broken)); }
    expect(reason([&] { lost.get(); }) == "broken promise");
    expect(reason([&] { broken.set_value(1); }) == "no state");
    std::promise<void> twice;
    twice.set_value();
    expect(reason([&] { twice.set_value(); }) == "already satisfied");

    // An exception for many: each gets the same object.
    std::promise<std::string> shout;
    std::shared_future<std::string> heard = shout.get_future().share();
    std::vector<std::thread> threads;
    std::atomic<int> caught{0};
    std::atomic<const Odd *> same{nullptr};
    for (int i = 0; i < 5; i++)
        threads.emplace_back([&] {
            try {
                heard.get();
            } catch (const Odd &e) {
                const Odd *none = nullptr;
                if (!same.compare_exchange_strong(none, &e)) expect(none == &e);
                caught += e.number;
            }
        });
    std::thread([&] { shout.set_exception_at_thread_exit(std::make_exception_ptr(Odd(7))); }).join();
    for (auto &t : threads) t.join();
    expect(caught == 35);

    // A task that runs in another thread, and an exception that is caught there and thrown again here.
    std::packaged_task<int(int)> task(half);
    auto result = task.get_future();
    std::thread(std::move(task), 9).join();
    expect(reason([&] { result.get(); }) == "odd: 9");
    std::exception_ptr carried;
    std::thread([&] {
        try {
            half(11);
        } catch (...) {
            carried = std::current_exception();
        }
    }).join();
    expect(reason([&] { std::rethrow_exception(carried); }) == "odd: 11");
    carried = nullptr;
    // Many threads throw through deep frames at the same time.
    threads.clear();
    std::atomic<long> deep{0};
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            struct Guard {
                std::atomic<long> &n;
                ~Guard() { n++; }
            };
            auto down = [&](auto &&self, int depth) -> int {
                Guard guard{deep};
                return depth ? self(self, depth - 1) : half(2 * i + 1);
            };
            for (int round = 0; round < 50; round++) expect(reason([&] { down(down, 20); }) == "odd: " + std::to_string(2 * i + 1));
        });
    for (auto &t : threads) t.join();
    say("unwound %ld frames\n", deep.load());
}
