// Go and other processes: os/exec with pipes, statuses and time limits; signals by signal.Notify; a program that starts itself.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
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

func child() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM)
	fmt.Println("ready")
	for s := range signals {
		fmt.Println("got", s)
		if s == syscall.SIGTERM {
			os.Exit(33)
		}
	}
}

func main() {
	if len(os.Args) > 1 {
		child()
	}
	// What a command says, what it reads, how it ends.
	out, err := exec.Command("sh", "-c", "echo out; echo err >&2; exit 3").CombinedOutput()
	var failed *exec.ExitError
	expect(errors.As(err, &failed) && failed.ExitCode() == 3 && string(out) == "out\nerr\n", string(out), err)
	command := exec.Command("tr", "a-z", "A-Z")
	command.Stdin = strings.NewReader(strings.Repeat("word ", 20000))
	out, err = command.Output()
	must(err)
	expect(len(out) == 100000 && strings.HasPrefix(string(out), "WORD WORD"), len(out))
	_, err = exec.Command("/nowhere/at/all").Output()
	expect(errors.Is(err, os.ErrNotExist), err)
	_, err = exec.LookPath("no-program-of-this-name")
	expect(errors.Is(err, exec.ErrNotFound), err)
	fmt.Println("commands: done")

	// Several at once.
	var group sync.WaitGroup
	for i := 0; i < 6; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			err := exec.Command("sh", "-c", fmt.Sprint("exit ", i)).Run()
			var failed *exec.ExitError
			expect((i == 0 && err == nil) || (errors.As(err, &failed) && failed.ExitCode() == i), i, err)
		}(i)
	}
	group.Wait()

	// Ourselves, with signals to and fro.
	self, err := os.Executable()
	must(err)
	command = exec.Command(self, "child")
	pipe, err := command.StdoutPipe()
	must(err)
	must(command.Start())
	lines := bufio.NewReader(pipe)
	line := func(wanted string) {
		text, err := lines.ReadString('\n')
		must(err)
		expect(text == wanted+"\n", text)
	}
	line("ready")
	for i := 0; i < 3; i++ {
		must(command.Process.Signal(syscall.SIGHUP))
		line("got hangup")
	}
	must(command.Process.Signal(syscall.SIGTERM))
	line("got terminated")
	_, err = lines.ReadString('\n')
	expect(err == io.EOF, err)
	err = command.Wait()
	expect(errors.As(err, &failed) && failed.ExitCode() == 33, err)
	expect(command.Process.Signal(syscall.SIGTERM) == os.ErrProcessDone, "done")

	// A command whose time is over is killed.
	ctx, cancel := context.WithCancel(context.Background())
	command = exec.CommandContext(ctx, "sleep", "1000000")
	must(command.Start())
	cancel()
	err = command.Wait()
	expect(err != nil && command.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL, err)

	// Signals to ourselves.
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	for i := 0; i < 10; i++ {
		wanted := []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2}[i%2]
		must(syscall.Kill(os.Getpid(), wanted))
		expect(<-signals == wanted, "the signal that was sent")
	}
	signal.Ignore(syscall.SIGUSR1)
	must(syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	fmt.Println("process", os.Getpid(), "done")
}
