// One test that fails, in a package of its own: `go test -exec` records a package at a time.
package sums

import "testing"

func TestAddsWrongly(t *testing.T) {
	numbers := make(chan int, 2)
	go func() { numbers <- 1; numbers <- 2 }()
	if sum := <-numbers + <-numbers; sum != 4 {
		t.Fatalf("the sum is %d", sum)
	}
}
