// Goroutines take one lock in turn; the program prints in which order.
package main

import (
	"fmt"
	"runtime"
	"sync"
)

func main() {
	var mu sync.Mutex
	var wg sync.WaitGroup
	order := 0
	for i := range 3 {
		wg.Go(func() {
			for range 100 {
				mu.Lock()
				order = order*31 + i
				mu.Unlock()
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	fmt.Println(order)
}
