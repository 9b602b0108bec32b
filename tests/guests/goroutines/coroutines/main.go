// Iterators that are pulled, goroutines that exit by Goexit, numbers of goroutines.
package main

import (
	"fmt"
	"iter"
	"runtime"
	"sync"
)

func count(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

func main() {
	var wg sync.WaitGroup
	c := make(chan int)
	for i := range 3 {
		wg.Go(func() {
			next, stop := iter.Pull(count(10 + i))
			defer stop()
			for v, ok := next(); ok; v, ok = next() {
				c <- v*10 + i
			}
		})
		go func() {
			defer func() { c <- -i }()
			runtime.Goexit()
		}()
	}
	go func() { wg.Wait(); c <- -100 }()
	hash, ended := 0, false
	for n := 0; n < 3 || !ended; {
		v := <-c
		hash = hash*31 + v
		if v <= 0 && v > -100 && v%10 != 0 || v == 0 {
			n++
		}
		if v == -100 {
			ended = true
			break
		}
	}
	fmt.Println(hash, runtime.NumGoroutine() > 0)
}
