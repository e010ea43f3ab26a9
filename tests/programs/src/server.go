// A server of HTTP with data larger than the budget, and a thousand goroutines that ask it, in one
// program. Usage: server_go MIB
package main

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
)

const part = 64 << 10

func main() {
	mib, _ := strconv.Atoi(os.Args[1])
	parts := make([][]byte, mib<<20/part)
	state := uint64(88172645463325252)
	for i := range parts {
		parts[i] = make([]byte, part)
		for at := 0; at < part; at += 8 {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
			binary.LittleEndian.PutUint64(parts[i][at:], state)
		}
	}
	http.HandleFunc("/part/", func(out http.ResponseWriter, asked *http.Request) {
		number, err := strconv.Atoi(asked.URL.Path[len("/part/"):])
		if err != nil || number < 0 || number >= len(parts) {
			http.NotFound(out, asked)
			return
		}
		out.Write(parts[number])
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, nil)
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}
	sums := make([]uint64, 1000)
	var group sync.WaitGroup
	for g := range sums {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < 4; i++ {
				number := (g*7919 + i*104729) % len(parts)
				answer, err := client.Get(fmt.Sprintf("http://%s/part/%d", listener.Addr(), number))
				if err != nil {
					panic(err)
				}
				sum := fnv.New64a()
				count, err := io.Copy(sum, answer.Body)
				answer.Body.Close()
				if err != nil || count != part {
					panic(fmt.Sprint(count, err))
				}
				sums[g] = sums[g]*31 + sum.Sum64()
			}
		}()
	}
	group.Wait()
	var all uint64
	for _, sum := range sums {
		all = all*31 + sum
	}
	fmt.Println(len(parts), all)
}
