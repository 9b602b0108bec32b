// A hundred goroutines, channels, select, mutexes, timers: who was served how often, in which order.
// run: 100 50
package main

import (
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"sync"
	"time"
)

func argument(i, otherwise int) int {
	if i < len(os.Args) {
		n, err := strconv.Atoi(os.Args[i])
		if err == nil {
			return n
		}
	}
	return otherwise
}

func main() {
	count, rounds := argument(1, 100), argument(2, 50)
	work, done := make(chan int, 10), make(chan [2]int)
	var lock sync.Mutex
	var group sync.WaitGroup
	total := 0
	for g := 0; g < count; g++ {
		group.Add(1)
		go func(me int) {
			defer group.Done()
			served := 0
			for job := range work {
				served++
				lock.Lock()
				total += job
				lock.Unlock()
				done <- [2]int{me, job}
			}
		}(g)
	}
	order := fnv.New64a()
	ticker := time.NewTicker(time.Millisecond)
	finished := make(chan bool)
	go func() {
		for i := 0; i < count*rounds; i++ {
			select {
			case d := <-done:
				fmt.Fprintf(order, "%d:%d ", d[0], d[1])
			case <-ticker.C:
				fmt.Fprintf(order, "tick ")
				i--
			}
		}
		finished <- true
	}()
	for i := 0; i < count*rounds; i++ {
		work <- i
	}
	<-finished
	close(work)
	group.Wait()
	if total != count*rounds*(count*rounds-1)/2 {
		os.Exit(99)
	}
	// Maps are iterated in an order that is random on purpose.
	table := map[int]bool{}
	for i := 0; i < 20; i++ {
		table[i] = true
	}
	for k := range table {
		fmt.Fprintf(order, "%d ", k)
	}
	fmt.Printf("order %d, at %d\n", order.Sum64(), time.Now().UnixNano())
}
