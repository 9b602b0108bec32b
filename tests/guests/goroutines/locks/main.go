// Package sync: mutexes, tried ones, readers and writers, conditions, once, groups.
package main

import (
	"fmt"
	"sync"
)

func main() {
	var mu sync.Mutex
	var rw sync.RWMutex
	var wg sync.WaitGroup
	var once sync.Once
	cond := sync.NewCond(&mu)
	order, tried, queue, first := 0, 0, []int{}, -1
	table := map[int]int{}
	for i := range 6 {
		wg.Go(func() {
			once.Do(func() { first = i })
			for j := range 60 {
				mu.Lock()
				order = order*31 + i
				mu.Unlock()
				if mu.TryLock() {
					tried += i + 1
					mu.Unlock()
				}
				if (i+j)%5 == 0 {
					rw.Lock()
					table[j] = i
					rw.Unlock()
				} else {
					rw.RLock()
					v := table[j]
					rw.RUnlock()
					mu.Lock()
					order = order*31 + v
					mu.Unlock()
				}
				if rw.TryRLock() {
					rw.RUnlock()
				}
			}
		})
	}
	taken := 0
	for i := range 3 {
		wg.Go(func() {
			for range 20 {
				mu.Lock()
				for len(queue) == 0 {
					cond.Wait()
				}
				taken = taken*31 + queue[0]*3 + i
				queue = queue[1:]
				mu.Unlock()
			}
		})
	}
	for i := range 60 {
		mu.Lock()
		queue = append(queue, i)
		mu.Unlock()
		if i%10 == 9 {
			cond.Broadcast()
		} else {
			cond.Signal()
		}
	}
	wg.Wait()
	fmt.Println(order, tried, first, len(table), taken)
}
