package fencelock

import (
	"context"
	"sync"
	"time"
)

// Lease is a lock that is held, and renewed until it is released or lost. Any goroutine may use it: the owner is the lease.
type Lease struct {
	names   []string
	token   int64
	session *session
	request *acquire
	ctx     context.Context
	cancel  context.CancelCauseFunc
	once    sync.Once
}

func newLease(ctx context.Context, s *session, r *acquire, token int64) *Lease {
	l := &Lease{names: r.names, token: token, session: s, request: r}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return l
}

// Name is the name of the lock, the first one when there are several.
func (l *Lease) Name() string { return l.names[0] }

// Token is the fencing token of this lease. Every write at the storage carries it. It is larger than the tokens of all earlier holders.
func (l *Lease) Token() int64 { return l.token }

// Context ends when the lease is lost or released. context.Cause tells which: ErrLost or ErrReleased. It ends before another client
// can hold the lock, unless this process is stopped meanwhile: that is what the token is for.
func (l *Lease) Context() context.Context { return l.ctx }

// Lost is closed when the lease is lost or released.
func (l *Lease) Lost() <-chan struct{} { return l.ctx.Done() }

// Err is nil while the lease is held, and ErrLost or ErrReleased after that. It looks at the clock, so it is right also in the first
// moment after the process was stopped.
func (l *Lease) Err() error {
	if err := context.Cause(l.ctx); err != nil {
		return err
	}
	if l.Remaining() == 0 {
		l.session.poke()
		return ErrLost
	}
	return nil
}

// State says whether the last renewal succeeded in time (Safe), whether renewals are late (Jeopardy), or that the lease is over (Lost).
func (l *Lease) State() State {
	if l.ctx.Err() != nil {
		return Lost
	}
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	return l.session.state.at(now())
}

// Remaining is how long the lease may be believed in if no further renewal succeeds. 0: it is over.
func (l *Lease) Remaining() time.Duration {
	if l.ctx.Err() != nil {
		return 0
	}
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	t := now()
	l.session.state.at(t)
	return time.Duration(l.session.state.remaining(t)) * time.Millisecond
}

func (l *Lease) end(why error) { l.once.Do(func() { l.cancel(why) }) }

// Release gives the lock back. It waits for the answer no longer than the context, and no longer than five seconds. A release without
// an answer goes on in the background, so the lock does not stay held. An error after the work is done is no reason to do it again:
// ErrLost says that the lease had ended before.
func (l *Lease) Release(ctx context.Context) error {
	had := l.Err()
	if had == nil {
		l.end(ErrReleased)
	}
	s := l.session
	if !s.remove(l) {
		return had
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	a, err := s.nodes.ask(ctx, s.request([]any{"RELEASE", l.names[0], l.token}))
	if err != nil { // also when it was not sent, or refused: the lock is held
		go s.settle(l.request)
		return err
	}
	s.vacate(l.names)
	s.poke()
	if a.replies[0] == int64(0) {
		return ErrLost
	}
	return nil
}
