// What tests/origin.rs asks of a recording: where the characters of a std::string come from that was read from standard input, cut, kept in a vector
// and put together again; and a value of a field that a thread has computed. The tests know the names, the numbers, and the comments that begin with "here".
// flags: -O2
// run:
// run: crash => SIGABRT
#include "guest.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

const char *shown;

namespace {

struct Order {
    std::string customer;
    int amount = 0;
};

std::vector<Order> orders;
long sum;

__attribute__((noinline)) std::string read_line(int fd) {
    char text[128];
    ssize_t n = read(fd, text, sizeof text); // here it is read
    return std::string(text, n > 0 ? n : 0);
}

__attribute__((noinline)) void take(const std::string &line) {
    Order order;
    size_t comma = line.find(',');
    order.customer = line.substr(0, comma);
    order.amount = std::stoi(line.substr(comma + 1));
    orders.push_back(order);
}

__attribute__((noinline)) void crash() {
    abort();
}

} // namespace

int main(int argc, char **) {
    struct rlimit { unsigned long soft, hard; } none = {0, 0};
    must(syscall(SYS_setrlimit, 4, &none));
    int ends[2];
    must(pipe(ends));
    const char line[] = "a customer with a long name,17";
    expect(write(ends[1], line, sizeof line - 1) == sizeof line - 1);
    take(read_line(ends[0]));
    std::thread adder([] { sum = orders[0].amount * 1000L + 5; }); // here it is computed
    adder.join();
    std::string text = "order of " + orders[0].customer;
    shown = text.c_str();
    say("%s: %ld\n", shown, sum);
    if (argc > 1) crash();
    return 0;
}
