// C++: four threads come to 512 static variables in functions, one after the other, and each keeps who made it. Who was first is said as a
// hash: a replay that lets another thread come first says another one.
#include "guest.h"
#include <array>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

static constexpr size_t PLACES = 512;
static constexpr int THREADS = 4;

template <size_t>
static int winner(int me) {
    static const int first = (std::this_thread::yield(), me);
    return first;
}

template <size_t... N>
static std::array<int, sizeof...(N)> winners(int me, std::atomic<int> &meet, std::index_sequence<N...>) {
    // All begin at once.
    for (meet++; meet < THREADS;) std::this_thread::yield();
    // What a thread does between two places takes now longer, now less.
    return {(burn((N + me) % 7 * 20), winner<N>(me))...};
}

int main() {
    std::atomic<int> meet{0};
    std::array<std::array<int, PLACES>, THREADS> seen;
    std::vector<std::thread> threads;
    for (int me = 0; me < THREADS; me++) {
        threads.emplace_back([&, me] { seen[me] = winners(me, meet, std::make_index_sequence<PLACES>()); });
    }
    for (auto &thread : threads) thread.join();
    uint64_t order = 0;
    for (size_t n = 0; n < PLACES; n++) {
        for (const auto &one : seen) expect(one[n] == seen[0][n]);
        order = mix(order * 31 + seen[0][n]);
    }
    say("%lu\n", (unsigned long)order);
}
