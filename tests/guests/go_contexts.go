// Time limits in Go: contexts that are cancelled and that run out, time.After against a channel, timers stopped and reset, tickers.
// run: 40
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func expect(holds bool, what string) {
	if !holds {
		fmt.Println("FAILED", what)
		os.Exit(99)
	}
}

// Answers after a while, unless nobody wants to know any more.
func answer(ctx context.Context, n int) (int, error) {
	result := make(chan int, 1)
	go func() {
		time.Sleep(time.Duration(n%7) * 100 * time.Microsecond)
		result <- n * n
	}()
	select {
	case r := <-result:
		return r, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func main() {
	rounds := 40
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	var group sync.WaitGroup
	var in_time, late atomic.Int64
	for i := 0; i < rounds; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Microsecond)
			defer cancel()
			if r, err := answer(ctx, i); err == nil {
				expect(r == i*i, "the answer")
				in_time.Add(1)
			} else {
				expect(errors.Is(err, context.DeadlineExceeded), "the reason")
				late.Add(1)
			}
		}(i)
	}
	group.Wait()
	expect(in_time.Load()+late.Load() == int64(rounds), "the sum")
	fmt.Println("in time", in_time.Load(), "late", late.Load())

	// One cancellation reaches a whole tree of contexts.
	root, cancel := context.WithCancel(context.WithValue(context.Background(), "name", 7))
	leaves := make(chan error)
	for i := 0; i < 10; i++ {
		child, done := context.WithTimeout(root, time.Hour)
		defer done()
		go func() {
			<-child.Done()
			expect(child.Value("name") == 7, "the value")
			leaves <- child.Err()
		}()
	}
	cancel()
	for i := 0; i < 10; i++ {
		expect(errors.Is(<-leaves, context.Canceled), "cancelled")
	}

	// Whichever comes first.
	never := make(chan int)
	select {
	case <-never:
		expect(false, "never")
	case <-time.After(time.Millisecond):
	}
	timer := time.NewTimer(time.Hour)
	expect(timer.Stop(), "stopped in time")
	timer.Reset(time.Microsecond)
	<-timer.C
	expect(!timer.Stop(), "stopped too late")
	fired := make(chan bool)
	time.AfterFunc(100*time.Microsecond, func() { close(fired) })
	<-fired
	ticker := time.NewTicker(200 * time.Microsecond)
	last := time.Now()
	for i := 0; i < 5; i++ {
		t := <-ticker.C
		expect(!t.Before(last), "order of ticks")
		last = t
	}
	ticker.Stop()
	select {
	case <-never:
	default:
		fmt.Println("at", time.Now().UnixNano())
	}
}
