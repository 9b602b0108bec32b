// Channels in all forms: unbuffered, buffered, closed, nil, in selects with and without default, as values of channels.
package main

import "fmt"

func main() {
	a, b, quit := make(chan int), make(chan int, 3), make(chan bool)
	ends := make(chan int)
	for i := range 4 {
		go func() {
			sent := 0
			for j := range 100 {
				v := i*1000 + j
				select {
				case a <- v:
				case b <- -v:
				}
				select {
				case b <- v:
					sent++
				default:
				}
			}
			ends <- sent
		}()
	}
	replies := make(chan chan int)
	go func() {
		for c := range replies {
			c <- len(b)
			close(c)
		}
		close(quit)
	}()
	hash, left := 0, 4
	var never chan int
	for left > 0 {
		select {
		case v := <-a:
			hash = hash*31 + v
		case v, ok := <-b:
			hash = hash*37 + v
			if !ok {
				panic("nobody closes it")
			}
		case n := <-ends:
			hash = hash*41 + n
			left--
		case <-never:
			panic("nil")
		}
	}
	c := make(chan int)
	replies <- c
	hash = hash*31 + <-c
	_, ok := <-c
	close(replies)
	<-quit
	func() {
		defer func() { fmt.Println(recover()) }()
		close(quit)
	}()
	fmt.Println(hash, ok, len(b), cap(b))
}
