// A panic in one goroutine of several ends the program.
package main

import (
	"fmt"
	"sync/atomic"
)

func main() {
	var n atomic.Int32
	for i := range 4 {
		go func() {
			for {
				if v := n.Add(1); v == 500 {
					var m map[string]int
					fmt.Println("the last one is", i)
					m["x"] = 1
				}
			}
		}()
	}
	select {}
}
