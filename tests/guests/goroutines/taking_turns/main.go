// Goroutines take one lock, until it has gone from one to another a hundred times; the program prints in which order.
package main

import (
	"fmt"
	"runtime"
	"sync"
)

func main() {
	var mu sync.Mutex
	var wg sync.WaitGroup
	order, last, changes := 0, 0, 0
	for i := range 3 {
		wg.Go(func() {
			for enough := false; !enough; runtime.Gosched() {
				mu.Lock()
				order = order*31 + i
				if last != i {
					last = i
					changes++
				}
				enough = changes >= 100
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	fmt.Println(order)
}
