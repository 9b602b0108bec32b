// All goroutines wait for ever.
package main

import "fmt"

func main() {
	c := make(chan int)
	go func() {
		fmt.Println(<-c)
		<-c
	}()
	c <- 1
	c <- 2
	c <- 3
}
