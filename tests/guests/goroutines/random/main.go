// Random numbers of all sources, and the order of maps.
package main

import (
	crypto "crypto/rand"
	"fmt"
	"hash/maphash"
	"math/rand"
	v2 "math/rand/v2"
	"sync"
)

func main() {
	var wg sync.WaitGroup
	lines := make([]string, 3)
	for i := range lines {
		wg.Go(func() {
			m := map[string]int{}
			for j := range 20 {
				m[fmt.Sprint("key", j)] = j
			}
			hash := 0
			for _, v := range m {
				hash = hash*31 + v
			}
			bytes := make([]byte, 8)
			crypto.Read(bytes)
			lines[i] = fmt.Sprint(hash, rand.Int63(), v2.Uint64(), bytes, maphash.String(maphash.MakeSeed(), "text"))
		})
	}
	wg.Wait()
	for _, l := range lines {
		fmt.Println(l)
	}
}
