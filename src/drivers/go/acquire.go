package fencelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	nameMax     = 255
	alsoMax     = 15
	ttlMin      = 50 * time.Millisecond
	ttlMost     = 24 * time.Hour
	permitsMax  = 1000000
	valueMax    = 1024
	ttlUsual    = 10 * time.Second
	patience    = 10 * time.Second // for an answer, on top of the wait
	waitAtOnce  = 24 * time.Hour   // the longest wait that one request may ask for
	waitForever = time.Duration(1<<63 - 1)
)

// acquire is what Acquire was asked for.
type acquire struct {
	names   []string
	ttl     uint64
	wait    time.Duration
	shared  bool
	permits int
	value   string
	err     error
}

// Option changes how a lock is acquired.
type Option func(*acquire)

// TTL is how long the lock outlives a process that dies: 50 ms to a day, 10 s by default. It is renewed while the lease is held.
// Leases of one TTL share one renewal.
func TTL(d time.Duration) Option {
	return func(r *acquire) {
		if d < ttlMin || d > ttlMost {
			r.err = fmt.Errorf("fencelock: TTL %v: give 50ms to 24h", d)
		}
		r.ttl = uint64(d / time.Millisecond)
	}
}

// Wait is how long to wait in the queue while others hold the lock; by default not at all. A wait that its context ends gives up its
// place. Negative: as long as the context allows.
func Wait(d time.Duration) Option {
	return func(r *acquire) {
		if r.wait = d; d < 0 {
			r.wait = waitForever
		}
	}
}

// Shared takes the lock together with other readers. A reader's token guards no write: see docs/PROTOCOL.md.
func Shared() Option { return func(r *acquire) { r.shared = true } }

// Permits makes the lock a semaphore that n clients hold at a time; 1 to 1,000,000. Every client of the lock gives the same n.
func Permits(n int) Option {
	return func(r *acquire) {
		if r.permits = n; n < 1 || n > permitsMax {
			r.err = fmt.Errorf("fencelock: Permits(%d): give 1 to %d", n, permitsMax)
		}
	}
}

// Value is what Holder tells others of the lease, such as the name of this process; 1024 bytes at most.
func Value(text string) Option {
	return func(r *acquire) {
		if r.value = text; len(text) > valueMax {
			r.err = fmt.Errorf("fencelock: Value has at most %d bytes, not %d", valueMax, len(text))
		}
	}
}

// Also takes further locks, all or none, under one token; 15 at most.
func Also(names ...string) Option {
	return func(r *acquire) { r.names = append(r.names, names...) }
}

func newAcquire(name string, options []Option) (*acquire, error) {
	r := &acquire{names: []string{name}, ttl: uint64(ttlUsual / time.Millisecond)}
	for _, o := range options {
		o(r)
	}
	for _, n := range r.names {
		if len(n) < 1 || len(n) > nameMax {
			return nil, fmt.Errorf("fencelock: the name of a lock has 1 to %d bytes, not %d", nameMax, len(n))
		}
	}
	switch {
	case r.err != nil:
		return nil, r.err
	case len(r.names) > 1+alsoMax:
		return nil, fmt.Errorf("fencelock: Also takes at most %d names, not %d", alsoMax, len(r.names)-1)
	case r.shared && r.permits != 0, len(r.names) > 1 && (r.shared || r.permits != 0):
		return nil, errors.New("fencelock: Shared, Permits and Also exclude each other")
	}
	return r, nil
}

func (r *acquire) words(owner string, attempt uint64, wait time.Duration) []any {
	w := []any{"ACQUIRE", r.names[0], "SESSION", owner}
	if wait > 0 {
		w = append(w, "WAIT", max(wait.Milliseconds(), 1))
	}
	for _, name := range r.names[1:] {
		w = append(w, "ALSO", name)
	}
	if r.shared {
		w = append(w, "MODE", "SHARED")
	}
	if r.permits != 0 {
		w = append(w, "PERMITS", r.permits)
	}
	if r.value != "" {
		w = append(w, "VALUE", r.value)
	}
	if attempt > 1 {
		w = append(w, "ATTEMPT", attempt)
	}
	return w
}

// take asks the service for the lock, in this session. 0: others have it. Every attempt after the first has a number above all before
// it, so that a late one takes nothing.
func (s *session) take(ctx context.Context, r *acquire, wait func() time.Duration) (int64, error) {
	s.mu.Lock()
	key := slices.Min(r.names) // as the service counts them
	number, again := s.attempts[key]
	s.mu.Unlock()
	q := s.request()
	q.held = wait
	q.words = func() [][]any {
		if number++; again || number > 1 {
			s.mu.Lock()
			number = max(number, s.attempts[key]+1, 2)
			s.attempts[key] = number
			s.mu.Unlock()
		}
		return [][]any{r.words(s.owner, number, wait())}
	}
	a, err := s.nodes.ask(ctx, q)
	if err != nil {
		return 0, err
	}
	token, _ := a.replies[0].(int64)
	return token, nil
}

// Acquire takes the lock. It returns ErrNotAcquired when others held it for the whole wait, ErrUnavailable when no node served for ten
// seconds beyond the wait, and a refusal as *Error. Whatever it returns but a lease, nothing stays held: an attempt without an answer
// is settled in the background. The context bounds the acquiring only.
func (c *Client) Acquire(ctx context.Context, name string, options ...Option) (*Lease, error) {
	r, err := newAcquire(name, options)
	if err != nil {
		return nil, err
	}
	end := never
	if r.wait != waitForever {
		end = now() + uint64(r.wait/time.Millisecond)
		limited, cancel := context.WithTimeout(ctx, r.wait+patience)
		defer cancel()
		ctx = limited
	}
	left := func() time.Duration {
		if end == never {
			return waitAtOnce
		}
		return min(time.Duration(end-min(end, now()))*time.Millisecond, waitAtOnce)
	}
	return c.acquire(ctx, r, left)
}

func (c *Client) acquire(ctx context.Context, r *acquire, left func() time.Duration) (*Lease, error) {
	avoid := map[*session]bool{}
	for {
		s, err := c.enter(ctx, r, avoid)
		if err != nil {
			return nil, err
		}
		token, err := s.take(ctx, r, left)
		again := false
		switch {
		case err == nil && token != 0:
			if l := s.adopt(ctx, r, token); l != nil {
				return l, nil
			}
			continue // the session was lost meanwhile, and its grants with it
		case isWord(err, "DEADLOCK"):
			avoid[s] = true // another lease of this process is in the circle, but not its holder: the owner is the lease
			again = true
		case isWord(err, "NOSESSION"):
			s.over()
			again = true
		case errors.Is(err, ErrUncertain):
			go s.settle(r)
			return nil, err
		}
		s.vacate(r.names)
		s.poke()
		switch {
		case again:
		case err != nil:
			return nil, err
		case left() == 0:
			return nil, ErrNotAcquired
		}
	}
}

// adopt makes a lease of a grant; nil when the session has been lost.
func (s *session) adopt(ctx context.Context, r *acquire, token int64) *Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isLost() {
		return nil
	}
	l := newLease(ctx, s, r, token)
	s.leases[l] = struct{}{}
	return l
}

// over notes that the service does not know the session any more.
func (s *session) over() {
	s.mu.Lock()
	s.state.state = Lost
	s.mu.Unlock()
	s.poke()
}

func isRefusal(err error) bool {
	var e *Error
	return errors.As(err, &e) && !errors.Is(err, ErrUncertain)
}

// isSeen says that the cluster has decided about this very attempt, so that none before it has an effect any more. Other refusals may
// come from a node by itself.
func isSeen(err error) bool {
	return isWord(err, "NOSESSION") || isWord(err, "DEADLOCK") || isWord(err, "MISMATCH")
}
