package fencelock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	lookMost    = time.Second // Go's timers stand still in a suspension, so nothing sleeps for longer than this
	settleAgain = time.Second // after a refusal, for instance by a node that takes no more connections
)

// session holds many leases of one TTL under one lease at the service: one renewal for all of them. A lock can be held once by a
// session, so a lease occupies the names of its locks there.
type session struct {
	nodes *nodes
	log   *slog.Logger
	owner string
	ttl   uint64
	gate  chan struct{} // its holder opens the session; capacity 1

	mu       sync.Mutex
	state    *leaseState // nil: not open yet
	leases   map[*Lease]struct{}
	occupied map[string]struct{} // names of leases, of acquires under way, and of those that are being settled
	attempts map[string]uint64   // the last number that was sent, for names whose request was ever sent twice
	freed    chan struct{}       // closed and made anew whenever names become free
	keeping  bool
	wake     chan struct{}
}

func newSession(n *nodes, log *slog.Logger, ttl uint64) *session {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return &session{nodes: n, log: log, owner: hex.EncodeToString(id[:]), ttl: ttl, gate: make(chan struct{}, 1),
		leases: map[*Lease]struct{}{}, occupied: map[string]struct{}{}, attempts: map[string]uint64{},
		freed: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// occupy takes the names, and returns false when one of them is taken or the session is lost.
func (s *session) occupy(names []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isLost() {
		return false
	}
	for _, name := range names {
		if _, taken := s.occupied[name]; taken {
			return false
		}
	}
	for _, name := range names {
		s.occupied[name] = struct{}{}
	}
	return true
}

func (s *session) vacate(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		delete(s.occupied, name)
	}
	close(s.freed)
	s.freed = make(chan struct{})
}

func (s *session) whenFreed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freed
}

func (s *session) isLost() bool { return s.state != nil && s.state.at(now()) == Lost }

// open makes sure that the session lives for at least half of its TTL, and that it is renewed from then on.
func (s *session) open(ctx context.Context) error {
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		return because(ErrUnavailable, context.Cause(ctx))
	}
	s.mu.Lock()
	fresh := s.state != nil && s.state.at(now()) == Safe
	lost := s.isLost()
	s.mu.Unlock()
	if lost {
		return errOver
	}
	if !fresh {
		a, err := s.nodes.ask(ctx, s.request([]any{"SESSION", "OPEN", s.owner, "TTL", s.ttl, "LABEL", label()}))
		if err != nil {
			return err
		}
		if err = s.opened(a.sent); err != nil {
			return err
		}
	}
	s.keep()
	return nil
}

var errOver = &Error{Word: "NOSESSION", Message: "the session is over"}

// opened notes the answer to an open that was sent at sent. Its leases may have been lost meanwhile: a lost one never comes back.
func (s *session) opened(sent uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state == nil:
		s.state = newLeaseState(sent, s.ttl)
	case s.isLost():
		return errOver
	default:
		s.state.renewed(now(), sent)
	}
	return nil
}

// request is one that is answered at once and may be sent again as it is.
func (s *session) request(words ...[]any) request {
	first := time.Duration(s.ttl) * time.Millisecond / 10
	return request{words: func() [][]any { return words }, attempt: min(max(first, 50*time.Millisecond), attemptFirst)}
}

// keep starts the renewing, unless it runs.
func (s *session) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.keeping {
		s.keeping = true
		go s.run()
	}
}

// run renews while names are occupied, and tells every lease of the loss. An idle session is left to expire: a lock that is taken
// soon afterwards finds it alive, and a process that takes no more costs nothing.
func (s *session) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	ended := make(chan func(), 1)
	for {
		select {
		case <-timer.C:
		case <-s.wake:
		case report := <-ended:
			report()
		}
		s.mu.Lock()
		t := now()
		if s.state.at(t) == Lost || (len(s.occupied) == 0 && !s.state.renewing) {
			s.keeping = false
			leases := s.lose()
			s.mu.Unlock()
			for _, l := range leases {
				l.end(ErrLost)
			}
			return
		}
		if s.state.wantsRenewal(t) {
			s.state.renewalBegan()
			go func() { ended <- s.renew() }()
		}
		wait := time.Duration(s.state.next()-min(t, s.state.next())) * time.Millisecond
		s.mu.Unlock()
		timer.Reset(min(wait, lookMost))
	}
}

// lose empties the session if it is lost. Its names are free: nothing that it held or awaited is left once its lease is over.
func (s *session) lose() []*Lease {
	var leases []*Lease
	if s.state.state == Lost {
		for l := range s.leases {
			leases = append(leases, l)
		}
		clear(s.leases)
		clear(s.occupied)
		close(s.freed)
		s.freed = make(chan struct{})
	}
	return leases
}

// renew renews the session, looks whether the service still has all of its locks (an operator may have broken one), and returns what
// is to be noted.
func (s *session) renew() func() {
	s.mu.Lock()
	until, held := s.state.until, s.holding()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(until-min(until, now()))*time.Millisecond)
	defer cancel()
	a, err := s.nodes.ask(ctx, s.request([]any{"SESSION", "RENEW", s.owner}, []any{"SESSION", "SHOW", s.owner}))
	result := renewed
	switch {
	case err != nil:
		s.log.Warn("fencelock: a renewal failed", "error", err)
		result = unknown
	case a.replies[0] == int64(0):
		result = gone
	case locksOf(a.replies[1]) < int64(held):
		go s.findBroken()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.state.renewalEnded(now(), result, a.sent)
	}
}

// holding counts the locks that the service must have for this session.
func (s *session) holding() int {
	n := 0
	for l := range s.leases {
		n += len(l.names)
	}
	return n
}

func locksOf(show any) int64 {
	n, _ := field(show, "locks").(int64)
	return n
}

// findBroken asks about each lease, and ends those that the service does not know.
func (s *session) findBroken() {
	s.mu.Lock()
	leases := make([]*Lease, 0, len(s.leases))
	for l := range s.leases {
		leases = append(leases, l)
	}
	s.mu.Unlock()
	const together = 64
	for from := 0; from < len(leases); from += together {
		part := leases[from:min(from+together, len(leases))]
		words := make([][]any, len(part))
		for i, l := range part {
			words[i] = []any{"CHECK", l.names[0], l.token}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.ttl)*time.Millisecond)
		a, err := s.nodes.ask(ctx, s.request(words...))
		cancel()
		if err != nil {
			return // the next renewal looks again
		}
		for i, l := range part {
			if a.replies[i] == int64(0) && s.remove(l) {
				l.end(ErrLost)
				s.vacate(l.names)
			}
		}
	}
}

func (s *session) remove(l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, here := s.leases[l]
	delete(s.leases, l)
	return here
}

// settle makes sure that an acquire or a release without success holds nothing: it asks once more, as a later attempt that does not
// wait, and gives back the grant. It ends when it is answered, or with the session. Until then the names stay occupied.
func (s *session) settle(r *acquire) {
	for {
		s.mu.Lock()
		lost, until := s.isLost(), s.state.until
		s.mu.Unlock()
		if lost {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(until-min(until, now())+1)*time.Millisecond)
		token, err := s.take(ctx, r, func() time.Duration { return time.Millisecond })
		if err == nil && token != 0 {
			_, err = s.nodes.ask(ctx, s.request([]any{"RELEASE", r.names[0], token}))
		}
		if err == nil || isSeen(err) || errors.Is(err, ErrClosed) {
			cancel()
			s.vacate(r.names)
			s.poke()
			return
		}
		rest(ctx, settleAgain)
		cancel()
	}
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
