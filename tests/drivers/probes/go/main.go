// The probe of the Go driver: see tests/drivers/suite. It takes commands from standard input and prints what it believes.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	fencelock "github.com/fencelock/fencelock/src/drivers/go"
	"github.com/fencelock/fencelock/src/drivers/go/pgfence"
	_ "github.com/jackc/pgx/v5/stdlib"
)

var (
	printing sync.Mutex
	encoder  = json.NewEncoder(os.Stdout)
	mu       sync.Mutex
	leases   = map[string]*fencelock.Lease{}
	cancels  = map[string]context.CancelFunc{}
)

func bootMs() float64 {
	var ts syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 7, uintptr(unsafe.Pointer(&ts)), 0)
	return float64(ts.Nano()) / 1e6
}

func say(id, event string, more map[string]any) {
	line := map[string]any{"at": bootMs(), "id": id, "event": event}
	for k, v := range more {
		line[k] = v
	}
	printing.Lock()
	defer printing.Unlock()
	_ = encoder.Encode(line)
}

// wordOf names an error for the suite.
func wordOf(err error) any {
	var refused *fencelock.Error
	for _, known := range []struct {
		err  error
		word string
	}{{fencelock.ErrNotAcquired, "notacquired"}, {fencelock.ErrUncertain, "uncertain"}, {fencelock.ErrUnavailable, "unavailable"},
		{fencelock.ErrLost, "lost"}, {fencelock.ErrReleased, "released"}, {fencelock.ErrClosed, "closed"}} {
		if errors.Is(err, known.err) {
			return known.word
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused.Word
	}
	return "argument"
}

func options(words []string) []fencelock.Option {
	var o []fencelock.Option
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "ttl":
			o = append(o, fencelock.TTL(time.Duration(n)*time.Millisecond))
		case "wait":
			o = append(o, fencelock.Wait(time.Duration(n)*time.Millisecond))
		case "shared":
			o = append(o, fencelock.Shared())
		case "permits":
			o = append(o, fencelock.Permits(n))
		case "also":
			o = append(o, fencelock.Also(strings.Split(value, ",")...))
		}
	}
	return o
}

func begin(id string) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	mu.Lock()
	defer mu.Unlock()
	cancels[id] = cancel
	return ctx
}

// believe notes the last moment at which the lease was believed in, every few milliseconds, and tells of the loss.
func believe(id string, l *fencelock.Lease) {
	last := 0.0 // it may have been stopped before its first look
	for {
		at := bootMs()
		if l.Err() != nil {
			break
		}
		last = at
		select {
		case <-l.Lost():
		case <-time.After(5 * time.Millisecond):
			continue
		}
		break
	}
	noticed := bootMs()
	<-l.Lost()
	say(id, "ended", map[string]any{"why": wordOf(l.Err()), "believed": last, "noticed": noticed})
}

func acquire(c *fencelock.Client, id, name string, more []string) {
	ctx := begin(id)
	l, err := c.Acquire(ctx, name, options(more)...)
	if err != nil {
		say(id, "failed", map[string]any{"error": wordOf(err), "text": err.Error()})
		return
	}
	mu.Lock()
	leases[id] = l
	mu.Unlock()
	say(id, "acquired", map[string]any{"token": l.Token()})
	believe(id, l)
}

func many(c *fencelock.Client, id, prefix string, n int, more []string) {
	var wg sync.WaitGroup
	var failed, lost int
	var count sync.Mutex
	gate := make(chan struct{}, 32)
	for i := 0; i < n; i++ {
		wg.Add(1)
		gate <- struct{}{}
		go func() {
			defer wg.Done()
			l, err := c.Acquire(context.Background(), fmt.Sprintf("%s-%d", prefix, i), options(more)...)
			<-gate
			count.Lock()
			defer count.Unlock()
			if err != nil {
				failed++
				return
			}
			context.AfterFunc(l.Context(), func() { count.Lock(); lost++; count.Unlock() })
		}()
	}
	wg.Wait()
	say(id, "many", map[string]any{"acquired": n - failed})
	for {
		time.Sleep(200 * time.Millisecond)
		count.Lock()
		say(id, "count", map[string]any{"lost": lost})
		count.Unlock()
	}
}

func elect(c *fencelock.Client, id, name string, more []string) {
	err := c.Elect(begin(id), name, func(ctx context.Context, l *fencelock.Lease) error {
		say(id, "leads", map[string]any{"token": l.Token()})
		go believe(id, l)
		<-ctx.Done()
		return ctx.Err()
	}, options(more)...)
	say(id, "resigned", map[string]any{"error": wordOf(err)})
}

// work adds one to a balance, n times, under the lock and through the guard, and prints how each addition ended.
func work(c *fencelock.Client, id, name, url string, n int, more []string) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		panic(err)
	}
	for i := 0; i < n; i++ {
		committing := false
		err := c.With(context.Background(), name, func(ctx context.Context, l *fencelock.Lease) error {
			if err := pgfence.Claim(ctx, db, l); err != nil {
				return err
			}
			var balance int
			if err := db.QueryRowContext(ctx, "SELECT balance FROM account WHERE lock = $1", name).Scan(&balance); err != nil {
				return err
			}
			committing = true
			return pgfence.Tx(ctx, db, l, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE account SET balance = $1 WHERE lock = $2", balance+1, name)
				return err
			})
		}, options(more)...)
		switch {
		case err == nil:
			say(id, "added", nil)
		case errors.Is(err, fencelock.ErrStale):
			say(id, "stale", nil)
		case committing:
			say(id, "perhaps", map[string]any{"text": err.Error()})
		default:
			say(id, "not added", map[string]any{"text": err.Error()})
		}
	}
	say(id, "worked", nil)
}

func watch(c *fencelock.Client, id, pattern string) {
	events, err := c.Watch(begin(id), pattern)
	if err != nil {
		say(id, "failed", map[string]any{"error": wordOf(err), "text": err.Error()})
		return
	}
	for e := range events {
		say(id, "event", map[string]any{"kind": e.Kind, "lock": e.Lock, "token": e.Token})
	}
	say(id, "unwatched", nil)
}

func do(c *fencelock.Client, words []string) {
	id := words[1]
	mu.Lock()
	l, cancel := leases[id], cancels[id]
	mu.Unlock()
	switch words[0] {
	case "acquire":
		go acquire(c, id, words[2], words[3:])
	case "elect":
		go elect(c, id, words[2], words[3:])
	case "watch":
		go watch(c, id, words[2])
	case "many":
		n, _ := strconv.Atoi(words[3])
		go many(c, id, words[2], n, words[4:])
	case "work":
		n, _ := strconv.Atoi(words[4])
		go work(c, id, words[2], words[3], n, words[5:])
	case "cancel":
		cancel()
	case "release":
		go func() {
			began := bootMs()
			err := l.Release(context.Background())
			say(id, "released", map[string]any{"error": wordOf(err), "took": bootMs() - began})
		}()
	case "state":
		say(id, "state", map[string]any{"state": l.State().String(), "remaining": l.Remaining().Milliseconds(), "error": wordOf(l.Err())})
	case "threads":
		say(id, "threads", map[string]any{"n": runtime.NumGoroutine()})
	case "close":
		say(id, "closed", map[string]any{"error": wordOf(c.Close())})
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

func main() {
	o := []fencelock.ConnectOption{fencelock.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))}
	if ca := os.Getenv("PROBE_CA"); ca != "" {
		pem, err := os.ReadFile(ca)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(pem) {
			panic("PROBE_CA has no certificate")
		}
		o = append(o, fencelock.WithTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}))
	}
	c, err := fencelock.Connect(os.Args[1], o...)
	if err != nil {
		say("", "failed", map[string]any{"error": "argument", "text": err.Error()})
		os.Exit(2)
	}
	say("", "ready", nil)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		do(c, strings.Fields(in.Text()))
	}
}
