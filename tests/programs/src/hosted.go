// A Go program: a map, slices that are sorted, a thousand goroutines, a nil pointer, timers, a
// child, and itself once more. Usage: hosted ENTRIES [child]
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"sync"
	"time"
)

func work(entries int) {
	names := map[int]string{}
	for i := 0; i < entries; i++ {
		names[i*7] = strconv.Itoa(i)
	}
	var group sync.WaitGroup
	var lock sync.Mutex
	total := 0
	for g := 0; g < 1000; g++ {
		group.Add(1)
		go func() {
			defer group.Done()
			sum := 0
			for i := g; i < entries; i += 1000 {
				sum += len(names[i*7])
			}
			time.Sleep(time.Millisecond)
			lock.Lock()
			total += sum
			lock.Unlock()
		}()
	}
	group.Wait()
	numbers := make([]int, 4*entries)
	for i := range numbers {
		numbers[i] = (i * 7919) % len(numbers)
	}
	sort.Ints(numbers)
	fmt.Println(len(names), total, numbers[entries])
}

func main() {
	entries, _ := strconv.Atoi(os.Args[1])
	work(entries)
	func() {
		defer func() { fmt.Println("recovered:", recover() != nil) }()
		var nothing *int
		fmt.Println(*nothing)
	}()
	own, err := os.Executable()
	fmt.Println(filepath.Base(own), err)
	if len(os.Args) > 2 {
		os.Exit(3)
	}
	out, err := exec.Command("/bin/echo", "a", "child").CombinedOutput()
	fmt.Printf("%q %v\n", out, err)
	out, err = exec.Command(own, "1000", "child").CombinedOutput()
	fmt.Printf("%s%v\n", out, err)
}
