// The program ends while goroutines print.
package main

import (
	"fmt"
	"os"
	"sync/atomic"
)

func main() {
	var lines atomic.Int32
	for i := range 3 {
		go func() {
			for j := 0; ; j++ {
				fmt.Println(i, j)
				lines.Add(1)
			}
		}()
	}
	for lines.Load() < 50 {
	}
	os.Exit(9)
}
