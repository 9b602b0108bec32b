// What C++ programs synchronise by: static variables of functions, call_once, shared pointers, futures, threads and their locks.
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>
#include "tell.h"

#ifdef CHANGED
// In front of the program's own.
__attribute__((used)) static long further[99] = {7};
#endif

struct Table {
    std::map<int, std::string> rows;
    Table() {
        for (int i = 0; i < 20; i++) rows[i] = std::to_string(i * i);
        tell("the table is made\n");
    }
};

static const std::string &row(int i) {
    static Table table;
    return table.rows.at(i % 20);
}

static int settings() {
    static int n = atoi(row(3).c_str());
    return n;
}

struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::shared_ptr<std::string>> items;
    bool closed = false;
};

static std::once_flag once;
static Queue queue;

static void produce(int me, int n) {
    for (int i = 0; i < n; i++) {
        std::call_once(once, [] { tell("once\n"); });
        auto item = std::make_shared<std::string>(row(i) + "/" + std::to_string(me + settings()));
        {
            std::lock_guard<std::mutex> lock(queue.mutex);
            queue.items.push_back(item);
            tell("%s is there, %ld owners\n", item->c_str(), item.use_count());
        }
        queue.changed.notify_one();
    }
}

static std::string consume() {
    std::string all;
    for (;;) {
        std::unique_lock<std::mutex> lock(queue.mutex);
        queue.changed.wait(lock, [] { return queue.closed || !queue.items.empty(); });
        if (queue.items.empty()) return all;
        auto item = queue.items.front();
        queue.items.pop_front();
        check(item->find('/') != std::string::npos);
        lock.unlock();
        all += *item + " ";
    }
}

int main() {
    tell("begins\n");
    auto first = std::async(std::launch::async, consume), second = std::async(std::launch::async, consume);
    std::vector<std::thread> producers;
    for (int i = 0; i < 3; i++) producers.emplace_back(produce, i, 15);
    for (auto &p : producers) p.join();
    {
        std::lock_guard<std::mutex> lock(queue.mutex);
        queue.closed = true;
    }
    queue.changed.notify_all();
    // In which order and by whom, is another in every run.
    std::string all = "hello: sum " + first.get() + "and " + second.get() + "\n";
    check(all.size() > 100);
    if (write(1, all.data(), all.size()) != (ssize_t)all.size()) return 2;
    return (int)(all.size() % 50);
}
