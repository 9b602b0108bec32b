// Coroutines of C++20: generators, tasks that go on in another thread, an exception out of one, destruction of one that never ended.
// flags: -std=gnu++20
// run: 100
#include <condition_variable>
#include <coroutine>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>
// Last: C++20 has functions of the name `ok`.
#include "guest.h"

template <class T> struct Generator {
    struct promise_type {
        T value;
        std::exception_ptr error;
        Generator get_return_object() { return Generator{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(T v) {
            value = v;
            return {};
        }
        void return_void() {}
        void unhandled_exception() { error = std::current_exception(); }
    };
    std::coroutine_handle<promise_type> handle;
    explicit Generator(std::coroutine_handle<promise_type> h) : handle(h) {}
    Generator(Generator &&other) : handle(other.handle) { other.handle = nullptr; }
    ~Generator() {
        if (handle) handle.destroy();
    }
    bool next() {
        handle.resume();
        if (handle.promise().error) std::rethrow_exception(handle.promise().error);
        return !handle.done();
    }
};

static int destroyed;
struct Witness {
    ~Witness() { destroyed++; }
};

static Generator<uint64_t> fibonacci(int most) {
    Witness witness;
    uint64_t a = 0, b = 1;
    for (int i = 0; i < most; i++) {
        co_yield a;
        b += a;
        a = b - a;
    }
    throw std::length_error("enough");
}

// Threads that resume whatever is ready.
struct Pool {
    std::mutex lock;
    std::condition_variable changed;
    std::deque<std::coroutine_handle<>> ready;
    bool over = false;
    void push(std::coroutine_handle<> h) {
        std::scoped_lock held(lock);
        ready.push_back(h);
        changed.notify_one();
    }
    void run() {
        std::unique_lock held(lock);
        for (;;) {
            changed.wait(held, [&] { return over || !ready.empty(); });
            if (ready.empty()) return;
            auto h = ready.front();
            ready.pop_front();
            held.unlock();
            h.resume();
            held.lock();
        }
    }
    auto yield() {
        struct Awaiter {
            Pool &pool;
            bool await_ready() { return false; }
            void await_suspend(std::coroutine_handle<> h) { pool.push(h); }
            void await_resume() {}
        };
        return Awaiter{*this};
    }
};

struct Task {
    struct promise_type {
        Task get_return_object() { return {}; }
        std::suspend_never initial_suspend() { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

static std::atomic<int> finished;
static std::atomic<uint64_t> order;

static Task wanders(Pool &pool, int me, long rounds) {
    for (long i = 0; i < rounds; i++) {
        co_await pool.yield();
        uint64_t old = order;
        while (!order.compare_exchange_weak(old, mix(old + me))) continue;
    }
    finished++;
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, 100);
    uint64_t sum = 0;
    {
        auto numbers = fibonacci(50);
        try {
            while (numbers.next()) sum += numbers.handle.promise().value;
            expect(false);
        } catch (const std::length_error &) {
        }
        auto unfinished = fibonacci(50);
        expect(unfinished.next() && unfinished.next());
    }
    expect(destroyed == 2);
    say("sum %lu\n", sum);

    Pool pool;
    enum { TASKS = 8 };
    for (int i = 0; i < TASKS; i++) wanders(pool, i, rounds);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) threads.emplace_back([&] { pool.run(); });
    while (finished < TASKS) std::this_thread::yield();
    {
        std::scoped_lock held(pool.lock);
        pool.over = true;
        pool.changed.notify_all();
    }
    for (auto &t : threads) t.join();
    say("order %lu\n", order.load());
}
