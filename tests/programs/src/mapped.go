// Maps a file, and checks that the mapping behaves as the kernel's does: reads by goroutines, a
// private mapping that is changed, advice, children, and a writer in this program.
//
//	mapped FILE
//	mapped FILE sum    prints a sum of all words
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

const page = 4096

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func mapped(file *os.File, size, rights, kind int) []byte {
	const dontNeed = 4
	fd := file.Fd()
	// A file in the page cache would be left to the kernel.
	check(syscall.Fdatasync(int(fd)))
	_, _, refused := syscall.Syscall6(syscall.SYS_FADVISE64, fd, 0, 0, dontNeed, 0, 0)
	if refused != 0 {
		panic(refused)
	}
	at, err := syscall.Mmap(int(fd), 0, size, rights, kind)
	check(err)
	return at
}

func sum(at []byte) uint64 {
	var sum uint64
	for ; len(at) >= 8; at = at[8:] {
		sum = mix(sum) + binary.LittleEndian.Uint64(at)
	}
	return sum
}

// Each goroutine compares parts of the mapping with what the file has there; `changed` says which
// pages of the mapping have other bytes.
func compare(file *os.File, at []byte, changed func(int) bool) {
	var all sync.WaitGroup
	for number := uint64(0); number < 4; number++ {
		all.Add(1)
		go func(seed uint64) {
			defer all.Done()
			for i := uint64(0); i < 400; i++ {
				first := int(mix(seed+i) % uint64(len(at)/page))
				// Garbage, so that the collector stops the threads by signals.
				right := make([]byte, page)
				_, err := file.ReadAt(right, int64(first*page))
				check(err)
				if bytes.Equal(right, at[first*page:][:page]) == changed(first) {
					panic(fmt.Sprintf("wrong bytes in page %d", first))
				}
			}
		}(number << 32)
	}
	all.Wait()
	runtime.GC()
}

func never(int) bool { return false }

func private(file *os.File, size int) {
	at := mapped(file, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	is := func(page int) bool { return page%3 == 1 }
	for i := 0; i < size/page; i++ {
		if is(i) {
			at[i*page+i%page] ^= 0xff
		}
	}
	compare(file, at, is)
	half := size / 2 / page * page
	check(syscall.Madvise(at[:half], syscall.MADV_DONTNEED))
	compare(file, at, func(page int) bool { return is(page) && page >= half/4096 })
	// The kernel reads the mapping.
	ends := make([]int, 2)
	check(syscall.Pipe(ends))
	got := make([]byte, page)
	for _, i := range []int{0, 1, half/page + 1, half/page + 2} {
		_, err := syscall.Write(ends[1], at[i*page:][:page])
		check(err)
		_, err = syscall.Read(ends[0], got)
		check(err)
		if !bytes.Equal(got, at[i*page:][:page]) {
			panic("other bytes in a pipe")
		}
	}
	check(syscall.Munmap(at))
}

// The program writes to the file that it maps.
func write(name string, at []byte) {
	for i, flags := range []int{os.O_WRONLY, os.O_RDWR | syscall.O_NONBLOCK} {
		to, err := os.OpenFile(name, flags, 0)
		check(err)
		word := binary.LittleEndian.AppendUint64(nil, mix(uint64(i)))
		_, err = to.WriteAt(word, int64(page*(7+i)))
		check(err)
		check(to.Close())
		if !bytes.Equal(at[page*(7+i):][:8], word) {
			panic("the mapping lacks what was written")
		}
	}
}

func main() {
	name := os.Args[1]
	file, err := os.Open(name)
	check(err)
	status, err := file.Stat()
	check(err)
	size := int(status.Size()) / page * page
	at := mapped(file, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if len(os.Args) > 2 {
		fmt.Println(sum(at))
		return
	}
	// A lease's signal is not the program's.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGIO)
	fmt.Println(sum(at))
	compare(file, at, never)
	check(syscall.Madvise(at, syscall.MADV_SEQUENTIAL))
	check(syscall.Mprotect(at[:page*8], syscall.PROT_NONE))
	check(syscall.Mprotect(at[:page*8], syscall.PROT_READ))
	compare(file, at, never)
	private(file, size)
	child := exec.Command(os.Args[0], name, "sum")
	child.Stderr = os.Stderr
	told, err := child.Output()
	check(err)
	fmt.Print(string(told))
	again := mapped(file, size, syscall.PROT_READ, syscall.MAP_PRIVATE)
	write(name, again)
	compare(file, again, never)
	compare(file, at, never)
	check(syscall.Munmap(again))
	check(syscall.Munmap(at))
	select {
	case got := <-signals:
		panic(got)
	default:
		fmt.Println("ok")
	}
}
