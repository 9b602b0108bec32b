// An exception that nobody catches ends the program by SIGABRT, with a message on standard error.
// run: => SIGABRT
#include "guest.h"
#include <stdexcept>
#include <sys/resource.h>
#include <thread>

int main() {
    struct rlimit none = {0, 0};
    must(setrlimit(RLIMIT_CORE, &none));
    say("about to throw, pid %d\n", getpid());
    std::thread thread([] { throw std::runtime_error("nobody is there"); });
    thread.join();
}
