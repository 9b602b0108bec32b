// Panics of every kind in Go, recovered: values, runtime errors, faults, nested ones, Goexit; at last all goroutines sleep, which is fatal.
// run: => 2
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

var none []int
var zero int
var table map[string]int
var something any = "text"

type fine struct{ text string }

func (f fine) Error() string { return f.text }

// Runs a function; what it panicked with.
func caught(f func()) (why any) {
	defer func() { why = recover() }()
	f()
	return nil
}

func show(what string, f func()) {
	why := caught(f)
	if e, is := why.(runtime.Error); is {
		fmt.Println(what+":", "runtime error:", e.Error())
	} else {
		fmt.Println(what+":", why)
	}
}

func main() {
	show("value", func() { panic("words") })
	show("index", func() { none[zero] = 1 })
	show("slice", func() { none = none[zero+1:] })
	show("division", func() { zero = 1 / zero })
	show("map", func() { table["x"] = 1 })
	show("type", func() { zero = something.(int) })
	show("closed", func() {
		c := make(chan int)
		close(c)
		close(c)
	})
	show("nil", func() { (*fine)(nil).Error() })
	show("size", func() { none = make([]int, zero-1) })
	show("nested", func() {
		defer func() { panic(fmt.Sprint("second after ", recover())) }()
		panic("first")
	})
	var f fine
	expect := errors.As(fmt.Errorf("wrapped: %w", fine{"inside"}), &f)
	fmt.Println("wrapped", expect, f.text)
	// A fault at an address that is no mistake of Go's own.
	debug.SetPanicOnFault(true)
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for k := 0; k < 20; k++ {
				if caught(func() { none[zero+k]++ }) == nil || caught(func() { fmt.Sprint((*fine)(nil).text) }) == nil {
					os.Exit(99)
				}
			}
			// Ends the goroutine, after its deferred calls.
			runtime.Goexit()
		}()
	}
	group.Wait()
	fmt.Println("eighty of them")
	// Nobody will ever answer.
	<-make(chan int)
}
