// C++: static variables in functions, std::call_once, and their exceptions; std's mutexes, conditions, futures.
// run: 2
// run: 8
// run: 64
#include "guest.h"
#include <condition_variable>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

static std::atomic<int> built, tried, once_tried;

struct Thing {
    int value;
    Thing() {
        built++;
        for (int i = 0; i < 10; i++) std::this_thread::yield();
        value = 42;
    }
};

static Thing &thing() {
    static Thing t;
    return t;
}

// The first three attempts fail.
static int stubborn() {
    static int value = [] {
        if (++tried <= 3) throw std::runtime_error("not yet");
        return 7;
    }();
    return value;
}

static std::once_flag flag;

static void stubborn_once() {
    std::call_once(flag, [] {
        if (++once_tried <= 2) throw std::runtime_error("not yet");
    });
}

int main(int argc, char **argv) {
    int threads = number(argc, argv, 1, 8);
    std::vector<std::thread> list;
    std::atomic<int> caught{0}, caught_once{0};
    std::mutex mutex;
    std::recursive_timed_mutex timed;
    std::shared_mutex shared;
    std::condition_variable_any changed;
    long counter = 0;
    int ready = 0;
    for (int i = 0; i < threads; i++) {
        list.emplace_back([&] {
            expect(thing().value == 42);
            for (;;) {
                try {
                    expect(stubborn() == 7);
                    break;
                } catch (const std::runtime_error &) {
                    caught++;
                }
            }
            for (;;) {
                try {
                    stubborn_once();
                    break;
                } catch (const std::runtime_error &) {
                    caught_once++;
                }
            }
            for (int k = 0; k < 50; k++) {
                std::unique_lock<std::shared_mutex> l(shared);
                counter++;
                std::scoped_lock both(mutex, timed);
                expect(timed.try_lock_for(std::chrono::milliseconds(1)));
                timed.unlock();
            }
            std::unique_lock<std::shared_mutex> l(shared);
            ready++;
            changed.notify_all();
            changed.wait(l, [&] { return ready == threads; });
        });
    }
    for (auto &t : list) t.join();
    expect(built == 1 && tried == 4 && caught == 3 && once_tried == 3 && caught_once == 2 && counter == 50 * threads);
    std::promise<int> promise;
    auto future = promise.get_future();
    std::thread giver([&] { promise.set_value(5); });
    expect(future.get() == 5);
    giver.join();
    say("threads %d, counter %ld\n", threads, counter);
}
