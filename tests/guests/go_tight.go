// Goroutines without a call in their loops: the Go runtime preempts them with SIGURG, or the others would never run.
// run: 5
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
)

func main() {
	wanted := 5
	if len(os.Args) > 1 {
		wanted, _ = strconv.Atoi(os.Args[1])
	}
	// One processor of Go's: the tight loop must be preempted for anything else to happen.
	runtime.GOMAXPROCS(1)
	var stop atomic.Bool
	var counters [2]uint64
	ended := make(chan int)
	for g := range counters {
		go func(me int) {
			for !stop.Load() {
				counters[me]++
			}
			ended <- me
		}(g)
	}
	for i := 0; i < wanted; i++ {
		time.Sleep(time.Millisecond)
		fmt.Printf("after %d sleeps\n", i+1)
	}
	runtime.GC()
	stop.Store(true)
	<-ended
	<-ended
	fmt.Printf("counted %d and %d\n", counters[0], counters[1])
}
