// A nil pointer in Go is a SIGSEGV that the Go runtime turns into a panic; recovered in one goroutine, fatal in another.
// run: => 2
package main

import "fmt"

type thing struct{ value int }

func use(t *thing) (result int) {
	defer func() {
		if r := recover(); r != nil {
			result = -1
		}
	}()
	return t.value
}

func main() {
	for i := 0; i < 10; i++ {
		fmt.Println("recovered", use(nil))
	}
	done := make(chan bool)
	go func() {
		var t *thing
		fmt.Println(t.value)
		done <- true
	}()
	<-done
}
