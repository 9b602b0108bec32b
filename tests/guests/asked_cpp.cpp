// What tests/ask.rs asks of a recording of C++: values of the standard library as gdb's printers show them, a template's code in two places, methods.
// flags: -O0
// run:
#include "guest.h"
#include <map>
#include <string>
#include <vector>

class Ledger {
  public:
    int add(const std::string &name, int amount) {
        entries.push_back(amount);
        sums[name] += amount; // here the entries are known
        return sums[name];
    }

  private:
    std::vector<int> entries;
    std::map<std::string, int> sums;
};

template <typename T> static T twice(T value) {
    T result = value + value;
    return result; // here it is doubled
}

int main() {
    Ledger ledger;
    for (int i = 1; i <= 3; i++) ledger.add(i % 2 ? "odd" : "even", i);
    int sum = 0;
    for (int i = 0; i < 3; i++) sum += twice(i) + static_cast<int>(twice(static_cast<long>(i)));
    say("sum %d, %d\n", sum, ledger.add("odd", 0));
    return 0;
}
