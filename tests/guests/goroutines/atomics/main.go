// Atomic operations: counters, flags that others wait for, pointers, values; as methods and as functions.
package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

type node struct {
	value int
	next  *node
}

func main() {
	var counter atomic.Int64
	var flag atomic.Bool
	var stack atomic.Pointer[node]
	var value atomic.Value
	var plain int64
	value.Store(0)
	var wg sync.WaitGroup
	hashes := make([]int64, 4)
	for i := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for !flag.Load() {
				runtime.Gosched()
			}
			for j := range 100 {
				n := counter.Add(int64(i + 1))
				hashes[i] = hashes[i]*31 + n
				item := &node{value: i*100 + j}
				for {
					item.next = stack.Load()
					if stack.CompareAndSwap(item.next, item) {
						break
					}
				}
				value.Store(i*100 + j)
				hashes[i] = hashes[i]*31 + int64(value.Load().(int))
				hashes[i] = hashes[i]*31 + atomic.AddInt64(&plain, 1)
			}
		}()
	}
	flag.Store(true)
	wg.Wait()
	hash := 0
	for n := stack.Load(); n != nil; n = n.next {
		hash = hash*31 + n.value
	}
	fmt.Println(counter.Load(), hash, hashes, atomic.LoadInt64(&plain), value.Load())
}
