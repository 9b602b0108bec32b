// What crates/reprise/tests/ask/goroutines.rs looks at: goroutines that wait, each for something else. The tests know these names.
// run: => 3
package main

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

var lock sync.Mutex

//go:noinline
func receives(from chan int) int {
	return <-from // here it receives
}

//go:noinline
func locks() {
	lock.Lock() // here it locks
	lock.Unlock()
}

//go:noinline
func selects(one, other chan int) {
	select { // here it selects
	case <-one:
	case other <- 1:
	}
}

//go:noinline
func sleeps() {
	time.Sleep(time.Hour) // here it sleeps
}

//go:noinline
func reads(from *os.File) {
	from.Read(make([]byte, 8)) // here it reads
}

//go:noinline
func starts(from *os.File) {
	go receives(make(chan int))
	go locks()
	go selects(make(chan int), make(chan int))
	go sleeps()
	go reads(from)
}

// Do all of them wait?
func wait(text []byte) bool {
	all := string(text[:runtime.Stack(text, true)])
	for _, state := range []string{"[chan receive", "[sync.Mutex.Lock", "[select", "[sleep", "[IO wait"} {
		if !strings.Contains(all, state) {
			return false
		}
	}
	return true
}

func main() {
	lock.Lock()
	from, _, err := os.Pipe()
	if err != nil {
		os.Exit(1)
	}
	starts(from)
	for text := make([]byte, 1<<16); !wait(text); {
		runtime.Gosched()
	}
	os.Exit(3) // here it ends
}
