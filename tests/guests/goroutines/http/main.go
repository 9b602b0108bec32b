// A server and its clients, over TCP: the network poller, deadlines, many goroutines.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	var served atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/n", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%d %s", served.Add(1), r.URL.Query().Get("who"))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second}
	go server.Serve(listener)
	var wg sync.WaitGroup
	hashes := make([]int, 4)
	for i := range hashes {
		wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: 5 * time.Second}
			for range 20 {
				response, err := client.Get(fmt.Sprintf("http://%s/n?who=%d", listener.Addr(), i))
				if err != nil {
					panic(err)
				}
				body, _ := io.ReadAll(response.Body)
				response.Body.Close()
				for _, b := range body {
					hashes[i] = hashes[i]*31 + int(b)
				}
			}
			client.CloseIdleConnections()
		})
	}
	wg.Wait()
	fmt.Println(hashes, listener.Addr(), served.Load())
	os.Exit(int(served.Load()) % 7)
}
