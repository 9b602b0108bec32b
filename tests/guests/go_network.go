// A TCP server and clients in one Go program, over the loopback device, through Go's own epoll loop.
// run: 8 20
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
)

func fail(err error) {
	if err != nil {
		fmt.Println("FAILED", err)
		os.Exit(99)
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	fail(err)
	var served, order atomic.Int64
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					n := served.Add(1)
					order.Store(order.Load()*31 + int64(len(lines.Text()))*n)
					fmt.Fprintf(c, "%d %s\n", n, lines.Text())
				}
			}()
		}
	}()
	var group sync.WaitGroup
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func(me int) {
			defer group.Done()
			c, err := net.Dial("tcp", listener.Addr().String())
			fail(err)
			defer c.Close()
			reader := bufio.NewReader(c)
			for j := 0; j < 20; j++ {
				fmt.Fprintf(c, "client %d line %d\n", me, j)
				_, err := reader.ReadString('\n')
				fail(err)
			}
		}(i)
	}
	group.Wait()
	listener.Close()
	if served.Load() != 160 {
		os.Exit(99)
	}
	fmt.Printf("order %d, port %d\n", order.Load(), listener.Addr().(*net.TCPAddr).Port)
}
