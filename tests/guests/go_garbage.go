// Go's collector at work: much garbage from several goroutines, sync.Pool, finalizers, stacks that grow and move, weakly kept memory.
// run: 4 300
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
)

type node struct {
	left, right *node
	value       int
}

func tree(depth int) *node {
	if depth == 0 {
		return &node{value: 1}
	}
	return &node{tree(depth - 1), tree(depth - 1), depth}
}

func (n *node) sum() int {
	if n == nil {
		return 0
	}
	return n.value + n.left.sum() + n.right.sum()
}

// Grows the stack, with pointers into it that have to move along.
func deep(n int, above *int) int {
	var here [64]int
	here[n%64] = n
	if n == 0 {
		return *above
	}
	return deep(n-1, &here[n%64]) + here[n%64] - n + *above - *above
}

func argument(i, otherwise int) int {
	if i < len(os.Args) {
		if n, err := strconv.Atoi(os.Args[i]); err == nil {
			return n
		}
	}
	return otherwise
}

func main() {
	goroutines, rounds := argument(1, 4), argument(2, 300)
	debug.SetGCPercent(20)
	var made, finalized atomic.Int64
	pool := sync.Pool{New: func() any { made.Add(1); return new([4096]byte) }}
	var group sync.WaitGroup
	var total atomic.Int64
	for g := 0; g < goroutines; g++ {
		group.Add(1)
		go func(g int) {
			defer group.Done()
			kept := map[int]*node{}
			for i := 0; i < rounds; i++ {
				buffer := pool.Get().(*[4096]byte)
				buffer[i%4096]++
				t := tree(6)
				if i%50 == 0 {
					runtime.SetFinalizer(t, func(*node) { finalized.Add(1) })
				}
				kept[i%10] = t
				total.Add(int64(t.sum()))
				pool.Put(buffer)
				if i%100 == g {
					total.Add(int64(deep(2000, &i) - 1))
					runtime.GC()
				}
			}
			for _, t := range kept {
				total.Add(int64(t.sum()))
			}
		}(g)
	}
	group.Wait()
	runtime.GC()
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if stats.NumGC == 0 || total.Load() == 0 {
		os.Exit(99)
	}
	fmt.Println("total", total.Load(), "collections", stats.NumGC, "buffers", made.Load(), "finalized", finalized.Load())
}
