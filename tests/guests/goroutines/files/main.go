// Files, directories, the environment, other processes.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

func main() {
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := filepath.Join(dir, fmt.Sprint("file", i))
			os.WriteFile(name, []byte(strings.Repeat(fmt.Sprint(i), 10000)), 0o600)
			text, _ := os.ReadFile(name)
			fmt.Println(name, len(text))
		})
	}
	wg.Wait()
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, _ := e.Info()
		fmt.Println(e.Name(), info.Size(), info.ModTime())
	}
	out, err := exec.Command("sh", "-c", "echo from $$; exit 3").Output()
	fmt.Print(string(out), err, "\n")
	host, _ := os.Hostname()
	cwd, _ := os.Getwd()
	fmt.Println(os.Getpid(), host, cwd, len(os.Args), os.Getenv("HOME"), len(os.Environ()))
}
