// Command probe takes one new lock after the other on an etcd cluster, as a transaction that creates a key under a
// lease, until it is killed. A line for each: when it was asked for and when it was granted, in nanoseconds of
// CLOCK_MONOTONIC.
//
//	probe a:1,b:2,c:3
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const clockMonotonic = 1

// now reads the clock that other processes can read as well; Go's own has a start of its own.
func now() int64 {
	var t syscall.Timespec
	if _, _, e := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&t)), 0); e != 0 {
		die(e)
	}
	return t.Nano()
}

func die(err error) {
	fmt.Fprintln(os.Stderr, "probe:", err)
	os.Exit(1)
}

func main() {
	if len(os.Args) != 2 {
		die(fmt.Errorf("usage: probe ADDRESSES"))
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Args[1], ","), DialTimeout: 5 * time.Second,
		Logger: zap.NewNop()})
	if err != nil {
		die(err)
	}
	lease, err := client.Grant(context.Background(), 600)
	if err != nil {
		die(err)
	}
	prefix := fmt.Sprintf("/probe/%d/", now())
	for i := 0; ; i++ {
		key := fmt.Sprintf("%s%d", prefix, i)
		sent := now()
		// The server's own limit is seven seconds, which is not what is to be measured.
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		made, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, "", clientv3.WithLease(lease.ID))).Commit()
		if err != nil || !made.Succeeded {
			cancel()
			time.Sleep(time.Millisecond) // the next key
			continue
		}
		fmt.Println(sent, now())
		_, _ = client.Delete(ctx, key) // what stays ends with the lease
		cancel()
	}
}
