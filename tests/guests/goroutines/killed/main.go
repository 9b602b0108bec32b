// The program is killed while goroutines are at work.
package main

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

func main() {
	var mu sync.Mutex
	hash := 0
	done := make(chan bool)
	for i := range 3 {
		go func() {
			for j := 0; ; j++ {
				mu.Lock()
				hash = hash*31 + i
				mu.Unlock()
				if j == 100 {
					done <- true
				}
			}
		}()
	}
	for range 3 {
		<-done
	}
	mu.Lock()
	fmt.Println(hash)
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
