// Command etcd measures locks of an etcd cluster through its own Go client and the lock recipe that comes with it
// (concurrency.Session and concurrency.Mutex).
//
//	etcd -endpoints a:1,b:2,c:3 -mode plain   -clients 1  -seconds 5
//	etcd -endpoints a:1,b:2,c:3 -mode handoff -clients 16 -seconds 5
//
// plain: each client has a lock of its own, and takes it and gives it back without end; a sample is the time of Lock.
// handoff: all clients want one lock; a sample is the time from before Unlock was called by the holder to when Lock
// returned to the next.
//
// Each client has a connection of its own. Prints one line of JSON: samples, seconds, and percentiles in microseconds.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

type worker struct {
	client  *clientv3.Client
	session *concurrency.Session
	mutex   *concurrency.Mutex
	samples []float64
	ops     int
}

var (
	began    = time.Now()
	released atomic.Int64 // when the holder began to give the lock back, in ns since began; 0: not yet
)

func since() int64 { return time.Since(began).Nanoseconds() }

func die(err error) {
	fmt.Fprintln(os.Stderr, "etcd:", err)
	os.Exit(1)
}

func connect(endpoints []string, name string) *worker {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second,
		Logger: zap.NewNop()})
	if err != nil {
		die(err)
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	if err != nil {
		die(err)
	}
	return &worker{client: client, session: session, mutex: concurrency.NewMutex(session, name)}
}

func (w *worker) run(handoff bool, warm, end time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), end.Add(30*time.Second))
	defer cancel()
	for time.Now().Before(end) {
		sent := since()
		if err := w.mutex.Lock(ctx); err != nil {
			die(err)
		}
		got := since()
		from := sent
		if handoff {
			from = released.Load()
		}
		// A lock that was asked for after it was given back was not handed over.
		if time.Now().After(warm) && (!handoff || (from != 0 && sent < from)) {
			w.samples = append(w.samples, float64(got-from)/1e3)
		}
		w.ops++
		released.Store(since())
		if err := w.mutex.Unlock(ctx); err != nil {
			die(err)
		}
	}
}

func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(p*float64(len(sorted)-1))]
}

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "client addresses, with commas between")
	mode := flag.String("mode", "plain", "plain or handoff")
	clients := flag.Int("clients", 1, "how many")
	seconds := flag.Float64("seconds", 5, "how long, after a tenth of it to warm up")
	flag.Parse()
	if *mode != "plain" && *mode != "handoff" {
		die(fmt.Errorf("there is no mode %q", *mode))
	}
	var workers []*worker
	for i := 0; i < *clients; i++ {
		name := "/bench/one"
		if *mode == "plain" {
			name = fmt.Sprintf("/bench/%d", i)
		}
		workers = append(workers, connect(strings.Split(*endpoints, ","), name))
	}
	began = time.Now()
	warm := began.Add(time.Duration(*seconds * 1e8))
	end := began.Add(time.Duration(*seconds * 1.1e9))
	var group sync.WaitGroup
	for _, w := range workers {
		group.Add(1)
		go func(w *worker) {
			defer group.Done()
			w.run(*mode == "handoff", warm, end)
		}(w)
	}
	group.Wait()
	var all []float64
	ops := 0
	for _, w := range workers {
		all = append(all, w.samples...)
		ops += w.ops
		w.session.Close()
		w.client.Close()
	}
	sort.Float64s(all)
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"mode": *mode, "clients": *clients, "seconds": *seconds, "samples": len(all), "locks": ops,
		"p50_us": percentile(all, 0.5), "p90_us": percentile(all, 0.9), "p99_us": percentile(all, 0.99),
		"max_us": percentile(all, 1),
	})
}
