// C++: what its library promises about threads orders them, but for the one variable that is named.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

static std::map<std::string, int> table;
static std::mutex mutex;
static std::shared_mutex shared_mutex;
static std::condition_variable ready;
static std::once_flag once;
static int racy;

struct Base {
    virtual ~Base() {}
    virtual int value() const { return 1; }
};

struct Derived : Base {
    std::string text = "a text that is too long for the small buffer";
    int value() const override { return (int)text.size(); }
};

static const std::vector<int> &table_of_squares() {
    static const std::vector<int> squares = [] {
        std::vector<int> v;
        for (int i = 0; i < 50; i++) v.push_back(i * i);
        return v;
    }();
    return squares;
}

static const std::vector<int> &table_of_cubes() {
    static const std::vector<int> cubes = [] {
        std::vector<int> v;
        for (int i = 0; i < 50; i++) v.push_back(i * i * i);
        return v;
    }();
    return cubes;
}

template <class F> static void in_threads(F f) {
    std::vector<std::thread> all;
    for (int i = 0; i < 3; i++) all.emplace_back(f, i);
    for (auto &t : all) t.join();
}

static void with_mutex(int me) {
    for (int i = 0; i < 20; i++) {
        std::lock_guard<std::mutex> l(mutex);
        table["key " + std::to_string(i % 5)] += me;
    }
}

static void with_shared_mutex(int me) {
    for (int i = 0; i < 20; i++) {
        if (i % 4 == me) {
            std::unique_lock<std::shared_mutex> l(shared_mutex);
            table["shared"] += i;
        } else {
            std::shared_lock<std::shared_mutex> l(shared_mutex);
            if (table.count("nothing")) std::puts("?");
        }
    }
}

static void with_owners() {
    auto owned = std::make_shared<Derived>();
    std::weak_ptr<Derived> weak = owned;
    std::vector<std::thread> all;
    for (int i = 0; i < 3; i++)
        all.emplace_back([p = std::shared_ptr<const Base>(owned)]() mutable {
            if (p->value() == 0) std::puts("?");
            p.reset();
        });
    owned.reset();
    for (auto &t : all) t.join();
    if (weak.lock()) std::puts("owned");
}

static void with_condition() {
    std::unique_ptr<std::string> message;
    std::thread t([&] {
        std::unique_lock<std::mutex> l(mutex);
        ready.wait(l, [&] { return message != nullptr; });
        *message += " received";
    });
    {
        std::lock_guard<std::mutex> l(mutex);
        message = std::make_unique<std::string>("a message of some length");
    }
    ready.notify_all();
    t.join();
    table[*message]++;
}

static void with_future() {
    std::promise<std::string> p;
    auto f = p.get_future();
    std::thread t([&p] { p.set_value(std::string(40, 'x')); });
    table[f.get()]++;
    t.join();
    auto later = std::async(std::launch::async, [] { return std::string(50, 'y'); });
    table[later.get()]++;
}

// The first thread comes late, and finds the variable initialised: that alone tells it what the second one did. In a replay it may be there first.
static void with_static_found_there() {
    std::thread late([] {
        unsigned long x = 1;
        for (long i = 0; i < 60000000; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            __asm__ volatile("" : "+r"(x));
        }
        if (table_of_cubes()[3] != 27) std::puts("?");
    });
    std::thread early([] {
        if (table_of_cubes()[2] != 8) std::puts("?");
    });
    late.join();
    early.join();
}

int main(int argc, char **argv) {
    in_threads(with_mutex);
    in_threads(with_shared_mutex);
    with_owners();
    with_condition();
    with_future();
    with_static_found_there();
    in_threads([](int me) {
        std::call_once(once, [] { table["once"] = 7; });
        if (table["once"] + table_of_squares()[me] < 7) std::puts("?");
    });
    if (argc > 1 && !std::strcmp(argv[1], "racy"))
        in_threads([](int me) {
            std::unique_lock<std::mutex> l(mutex, std::defer_lock);
            if (me != 1) l.lock();
            racy += me;
        });
    int sum = racy;
    for (auto &[key, n] : table) sum += n + (int)key.size();
    std::printf("%d\n", sum);
}
