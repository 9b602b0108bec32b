// Timers, tickers, sleeping, contexts with deadlines, clocks.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

func main() {
	began := time.Now()
	var mu sync.Mutex
	order := ""
	say := func(s string) {
		mu.Lock()
		order += s
		mu.Unlock()
	}
	done := make(chan bool)
	for i := range 3 {
		time.AfterFunc(time.Duration(i+1)*time.Millisecond, func() {
			say(fmt.Sprint("f", i))
			done <- true
		})
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	timer := time.NewTimer(3 * time.Millisecond)
	for left := 3; left > 0; {
		select {
		case t := <-ticker.C:
			say(fmt.Sprint("t", t.Nanosecond()%10))
		case t := <-timer.C:
			say(fmt.Sprint("T", t.Nanosecond()%10))
			timer.Reset(time.Millisecond)
		case <-done:
			left--
		}
	}
	stopped := timer.Stop()
	time.Sleep(2 * time.Millisecond)
	ticker.Reset(time.Hour)
	select {
	case <-ticker.C:
		say("stale")
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
	defer cancel()
	select {
	case <-ctx.Done():
		say(ctx.Err().Error())
	case <-time.After(time.Minute):
	}
	fmt.Println(order, stopped, time.Since(began), time.Now())
}
