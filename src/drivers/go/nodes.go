package fencelock

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	pauseFirst   = 10 * time.Millisecond
	pauseMost    = 500 * time.Millisecond
	attemptFirst = 500 * time.Millisecond // for an answer that is due at once, in the first round
	attemptMost  = 8 * time.Second
	probeEvery   = 2 * time.Second // a node that holds an answer back is asked whether it still serves
	probesMost   = 2               // so many without a leader, one after another, and the wait goes on elsewhere
	idleWaiters  = 16
)

// node is one server. go-redis carries connection, login, TLS and protocol; it repeats nothing and its time-outs are those of the
// contexts that it is given, so that this package alone decides which attempt a request is.
type node struct {
	options redis.Options
	client  *redis.Client
	mu      sync.Mutex
	idle    []*redis.Client // of one connection each, for answers that are held back
}

type nodes struct {
	list   []*node
	prefer atomic.Uint32 // the one that answered last
}

func newNodes(t *target, secure *tls.Config, name string) *nodes {
	n := &nodes{}
	for _, address := range t.addresses {
		o := redis.Options{Addr: address, Username: t.user, Password: t.password, ClientName: name, MaxRetries: -1,
			ReadTimeout: -1, WriteTimeout: -1, ContextTimeoutEnabled: true, PoolSize: 8, DialTimeout: 3 * time.Second}
		if t.tls {
			o.TLSConfig = secure.Clone()
			if o.TLSConfig.ServerName == "" {
				o.TLSConfig.ServerName = address[:strings.LastIndex(address, ":")]
			}
		}
		shared := o
		n.list = append(n.list, &node{options: o, client: redis.NewClient(&shared)})
	}
	n.prefer.Store(uint32(rand.IntN(len(n.list))))
	return n
}

func (n *nodes) close() {
	for _, x := range n.list {
		_ = x.client.Close()
		x.mu.Lock()
		for _, w := range x.idle {
			_ = w.Close()
		}
		x.idle = nil
		x.mu.Unlock()
	}
}

func (x *node) waiter() *redis.Client {
	x.mu.Lock()
	defer x.mu.Unlock()
	if last := len(x.idle) - 1; last >= 0 {
		w := x.idle[last]
		x.idle = x.idle[:last]
		return w
	}
	o := x.options
	o.PoolSize = 1
	return redis.NewClient(&o)
}

func (x *node) keep(w *redis.Client) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.idle) < idleWaiters {
		x.idle = append(x.idle, w)
	} else {
		_ = w.Close()
	}
}

// request is one request, or several that are sent together, that may be carried out twice without harm. Each attempt asks for the
// words again, since ACQUIRE numbers its attempts. held says how long the server may hold the answer back.
type request struct {
	words   func() [][]any
	held    func() time.Duration
	attempt time.Duration
}

// answer is what a node said: one reply for each request that was sent together. sent is from before the attempt that was answered.
type answer struct {
	replies []any
	sent    uint64
}

type verdict int

const (
	answered  verdict = iota
	refused           // for good
	elsewhere         // surely not done; another node, or this one after a pause
	uncertain         // the node lost its leader in the middle: it knows the next one first
	silent            // no answer: it may be done
)

// judge says what an attempt's error means.
func judge(err error) verdict {
	var said redis.Error
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		return answered
	case errors.As(err, &said):
		word, _, _ := strings.Cut(said.Error(), " ")
		switch word {
		case "NOLEADER", "BUSY":
			return elsewhere
		case "UNCERTAIN":
			return uncertain
		}
		return refused
	case errors.Is(err, redis.ErrClosed), errors.As(err, &dial) && dial.Op == "dial", errors.As(err, &certificate):
		return elsewhere
	}
	return silent
}

// ask sends the request, to one node after another, until one answers or refuses it or the context ends. When it is refused or the
// context ends, the error is ErrUncertain if some attempt may have been carried out. It is ErrUnavailable if surely none was.
func (n *nodes) ask(ctx context.Context, r request) (answer, error) {
	at, asked := int(n.prefer.Load()), 0
	attempt, pause, stayed, open := r.attempt, pauseFirst, false, false
	var last error
	for ctx.Err() == nil {
		a, err := n.list[at].try(ctx, r, attempt)
		v := judge(err)
		open = open || v == silent || v == uncertain
		switch {
		case v == answered:
			n.prefer.Store(uint32(at))
			return a, nil
		case v == refused && open && !isSeen(refusal(err.Error())): // it is about this attempt, and not about the one before
			return a, because(ErrUncertain, refusal(err.Error()))
		case v == refused:
			return a, refusal(err.Error())
		}
		if errors.Is(err, redis.ErrClosed) {
			return a, ErrClosed
		}
		last = err
		if v == uncertain && !stayed {
			stayed = true
			continue
		}
		stayed = false
		at = (at + 1) % len(n.list)
		if asked++; asked%len(n.list) == 0 {
			rest(ctx, time.Duration(1+rand.Int64N(int64(pause))))
			pause = min(pause*2, pauseMost)
			attempt = min(attempt*2, attemptMost)
		}
	}
	if open {
		return answer{}, because(ErrUncertain, last)
	}
	return answer{}, because(ErrUnavailable, last)
}

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

type result struct {
	answer
	err error
}

// try makes one attempt at one node. An answer that is held back has a connection of its own. It is closed when the wait is given up,
// and the node takes back the place in the queue. Meanwhile the node is asked whether it serves: a node that hangs closes nothing.
func (x *node) try(ctx context.Context, r request, attempt time.Duration) (answer, error) {
	held := time.Duration(0)
	if r.held != nil {
		held = r.held()
	}
	client := x.client
	if held > 0 {
		client = x.waiter()
	}
	words, sent, done := r.words(), now(), make(chan result, 1)
	go func() {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), held+attempt)
		defer cancel()
		replies, err := exchange(limit, client, words)
		done <- result{answer{replies, sent}, err}
	}()
	if held == 0 {
		select {
		case got := <-done:
			return got.answer, got.err
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		}
	}
	a, err := x.await(ctx, done, attempt)
	if v := judge(err); v == answered || v == refused {
		x.keep(client)
	} else {
		_ = client.Close()
	}
	return a, err
}

func (x *node) await(ctx context.Context, done <-chan result, attempt time.Duration) (answer, error) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	probed, probing, poor := make(chan int, 1), false, 0
	for poor < probesMost {
		select {
		case got := <-done:
			return got.answer, got.err
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		case <-tick.C:
			if !probing {
				probing = true
				go func() { probed <- x.probe(ctx, max(attempt, time.Second)) }()
			}
		case n := <-probed:
			probing = false
			if poor += n; n == 0 {
				poor = 0
			}
		}
	}
	return answer{}, errors.New("the node says nothing, or knows no leader")
}

// probe returns 0 when the node knows a leader. A node without one may be in an election, so that counts half of a node that is silent.
func (x *node) probe(ctx context.Context, limit time.Duration) int {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	replies, err := exchange(ctx, x.client, [][]any{{"LEADER"}})
	switch {
	case err != nil:
		return probesMost
	case replies[0] == nil:
		return 1
	}
	return 0
}

// exchange sends requests together and returns their replies. The error is that of the first one which failed.
func exchange(ctx context.Context, client *redis.Client, words [][]any) ([]any, error) {
	cmds := make([]*redis.Cmd, len(words))
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, w := range words {
			cmds[i] = p.Do(ctx, w...)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	replies := make([]any, len(cmds))
	for i, cmd := range cmds {
		replies[i] = cmd.Val()
	}
	return replies, nil
}
