// Signals that the program asked for.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGUSR1, syscall.SIGTERM)
	for range 3 {
		syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		fmt.Println(<-c)
	}
	signal.Stop(c)
	fmt.Println("end")
}
