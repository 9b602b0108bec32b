// As debugged.c, in C++: std::thread, members, a container.
// flags: -O0
#include "guest.h"
#include <thread>
#include <vector>

struct Account {
    std::vector<int> entries;
    void add(int amount) {
        entries.push_back(amount); // here it is added
    }
};

static void fill(Account &account, int count) {
    for (int i = 1; i <= count; i++) account.add(i * i);
}

int main() {
    Account account;
    std::thread thread(fill, std::ref(account), 4);
    thread.join();
    expect(account.entries.size() == 4 && account.entries[3] == 16);
    say("%zu entries\n", account.entries.size());
    return 0;
}
