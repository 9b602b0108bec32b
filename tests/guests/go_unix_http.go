// HTTP in one Go program, over a unix socket and over the loopback: handlers, keep-alive, chunked bodies, time limits, a shutdown.
// run: 3 10
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

func expect(holds bool, what ...any) {
	if !holds {
		fmt.Println("FAILED", what)
		os.Exit(99)
	}
}

func must(err error) {
	expect(err == nil, err)
}

func argument(i, otherwise int) int {
	if i < len(os.Args) {
		if n, err := strconv.Atoi(os.Args[i]); err == nil {
			return n
		}
	}
	return otherwise
}

func serve(network, address string, clients, rounds int) {
	listener, err := net.Listen(network, address)
	must(err)
	var lock sync.Mutex
	served := 0
	stuck := make(chan bool)
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must(err)
		lock.Lock()
		served++
		lock.Unlock()
		// In pieces, so that the length is not known before.
		for i := 0; i < len(body); i += 1000 {
			w.Write(body[i:min(i+1000, len(body))])
			w.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/stuck", func(w http.ResponseWriter, r *http.Request) {
		close(stuck)
		<-r.Context().Done()
	})
	server := &http.Server{Handler: mux}
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()

	var group sync.WaitGroup
	for c := 0; c < clients; c++ {
		group.Add(1)
		go func(c int) {
			defer group.Done()
			transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, listener.Addr().String())
			}}
			client := &http.Client{Transport: transport}
			for i := 0; i < rounds; i++ {
				sent := bytes.Repeat([]byte{byte('a' + c)}, 500*i+1)
				answer, err := client.Post("http://guest/echo", "text/plain", bytes.NewReader(sent))
				must(err)
				body, err := io.ReadAll(answer.Body)
				must(err)
				answer.Body.Close()
				expect(answer.StatusCode == 200 && bytes.Equal(sent, body), answer.Status, len(body))
			}
			answer, err := client.Get("http://guest/nowhere")
			must(err)
			answer.Body.Close()
			expect(answer.StatusCode == 404, answer.Status)
			if c == 0 {
				// A request that is given up while the server works on it.
				ctx, cancel := context.WithCancel(context.Background())
				go func() {
					<-stuck
					cancel()
				}()
				request, err := http.NewRequestWithContext(ctx, "GET", "http://guest/stuck", nil)
				must(err)
				_, err = client.Do(request)
				expect(errors.Is(err, context.Canceled), err)
			}
			transport.CloseIdleConnections()
		}(c)
	}
	group.Wait()
	must(server.Shutdown(context.Background()))
	expect(<-ended == http.ErrServerClosed, "closed")
	_, err = net.Dial(network, listener.Addr().String())
	expect(err != nil, "nobody listens")
	fmt.Println(network, "served", served, "requests")
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func main() {
	clients, rounds := argument(1, 3), argument(2, 10)
	dir, err := os.MkdirTemp("", "reprise-guest-")
	must(err)
	defer os.RemoveAll(dir)
	serve("unix", filepath.Join(dir, "socket"), clients, rounds)
	serve("tcp", "127.0.0.1:0", clients, rounds)
}
