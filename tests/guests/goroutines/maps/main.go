// sync.Map and sync.Pool.
package main

import (
	"fmt"
	"sync"
)

func main() {
	var m sync.Map
	pool := sync.Pool{New: func() any { return new([64]int) }}
	var wg sync.WaitGroup
	sums := make([]int, 4)
	for i := range 4 {
		wg.Go(func() {
			for j := range 100 {
				room := pool.Get().(*[64]int)
				room[0] = i
				v, loaded := m.LoadOrStore(j%17, i*100+j)
				if loaded && j%3 == 0 {
					m.CompareAndSwap(j%17, v, j)
				}
				if j%11 == 0 {
					m.Delete(j % 17)
				}
				sums[i] = sums[i]*31 + v.(int) + room[0]
				pool.Put(room)
			}
		})
	}
	wg.Wait()
	hash := 0
	m.Range(func(k, v any) bool {
		hash = hash*31 + k.(int)*7 + v.(int)
		return true
	})
	fmt.Println(sums, hash)
}
