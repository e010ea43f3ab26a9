// Pairs in a bbolt file: written in large transactions, read by goroutines while others are
// written, and counted at the end. Usage: bbolt PAIRS FILE
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"sync"

	bolt "go.etcd.io/bbolt"
)

var bucket = []byte("pairs")

func key(number int) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(number)*0x9e3779b97f4a7c15)
}

func value(number int) []byte {
	return []byte(fmt.Sprintf("%0100d", number*7919))
}

func fail(err error) {
	if err != nil {
		panic(err)
	}
}

// Writes the pairs whose numbers leave this remainder.
func write(db *bolt.DB, pairs, remainder int) {
	fail(db.Update(func(change *bolt.Tx) error {
		to, err := change.CreateBucketIfNotExists(bucket)
		fail(err)
		for number := remainder; number < pairs; number += 2 {
			fail(to.Put(key(number), value(number)))
		}
		return nil
	}))
}

func main() {
	pairs, _ := strconv.Atoi(os.Args[1])
	db, err := bolt.Open(os.Args[2], 0600, &bolt.Options{NoSync: true})
	fail(err)
	write(db, pairs, 0)
	var group sync.WaitGroup
	wrong := make([]int, 8)
	for reader := range wrong {
		group.Add(1)
		go func() {
			defer group.Done()
			fail(db.View(func(view *bolt.Tx) error {
				from := view.Bucket(bucket)
				for number := 2 * reader; number < pairs; number += 16 {
					if string(from.Get(key(number))) != string(value(number)) {
						wrong[reader]++
					}
				}
				return nil
			}))
		}()
	}
	write(db, pairs, 1)
	group.Wait()
	sum, count := uint64(0), 0
	fail(db.View(func(view *bolt.Tx) error {
		return view.Bucket(bucket).ForEach(func(key, value []byte) error {
			for _, b := range value {
				sum = sum*31 + uint64(b)
			}
			count++
			return nil
		})
	}))
	fail(db.Close())
	fmt.Println(wrong, count, sum)
}
