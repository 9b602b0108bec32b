// What tests/debug_languages.rs looks at with gdb: a variable that another goroutine spoils long before the program notices.
// The tests know these names.
// run: => 3
package main

import (
	"fmt"
	"os"
	"sync"
)

var balance int64 = 100

//go:noinline
func spoil(what *int64) {
	*what = -7
}

//go:noinline
func deposit(lock *sync.Mutex, total *int64, amount int64) {
	lock.Lock()
	*total += amount
	lock.Unlock()
}

func main() {
	var lock sync.Mutex
	var total int64
	var all sync.WaitGroup
	for me := int64(1); me <= 3; me++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for round := 0; round < 5; round++ {
				deposit(&lock, &total, me)
				if me == 2 && round == 2 {
					spoil(&balance)
				}
			}
		}()
	}
	all.Wait()
	fmt.Println("total", total)
	if balance < 0 {
		os.Exit(3)
	}
}
