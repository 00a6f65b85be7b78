// Package fencelock takes locks of a fencelock cluster: with a lease that is renewed, a context that ends when the lock is lost, and a
// fencing token that a storage checks.
//
//	locks, err := fencelock.Connect("fencelock://10.0.0.1:7401,10.0.0.2:7401,10.0.0.3:7401")
//	err = locks.With(ctx, "account/42", func(ctx context.Context, lease *fencelock.Lease) error {
//		// ctx ends, with the cause fencelock.ErrLost, before anybody else can hold the lock
//		return write(ctx, lease.Token())
//	}, fencelock.Wait(30*time.Second))
//
// Package pgfence carries the token into transactions of PostgreSQL.
package fencelock

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// Client is one for each process: all its leases of one TTL are one session at the service, and so one renewal. Any goroutine may use
// it.
type Client struct {
	nodes *nodes
	log   *slog.Logger
	tls   *tls.Config

	mu       sync.Mutex
	closed   bool
	sessions map[uint64][]*session // by TTL
}

// ConnectOption changes how a client connects.
type ConnectOption func(*Client)

// WithTLS gives certificates for fencelocks:// addresses. By default the system's authorities are trusted.
func WithTLS(config *tls.Config) ConnectOption { return func(c *Client) { c.tls = config } }

// WithLogger gives the logger for what no call returns: failed renewals. By default it is slog.Default().
func WithLogger(log *slog.Logger) ConnectOption { return func(c *Client) { c.log = log } }

// Connect reads the URL: fencelock://HOST:PORT,HOST:PORT, or fencelocks://USER:PASSWORD@HOST:PORT for TLS and a login. It connects to
// nobody yet.
func Connect(url string, options ...ConnectOption) (*Client, error) {
	t, err := parse(url)
	if err != nil {
		return nil, err
	}
	c := &Client{log: slog.Default(), tls: &tls.Config{MinVersion: tls.VersionTLS12}, sessions: map[uint64][]*session{}}
	for _, o := range options {
		o(c)
	}
	c.nodes = newNodes(t, c.tls, label())
	return c, nil
}

// label names this process for the operators of the service.
func label() string {
	return filepath.Base(os.Args[0]) + "-" + strconv.Itoa(os.Getpid())
}

// enter finds a session of the TTL in which the names are free, and makes sure that it lives. Readers and holders of a semaphore take
// another session when this one has the name already. Others wait until it is free, as they would for another process.
func (c *Client) enter(ctx context.Context, r *acquire, avoid map[*session]bool) (*session, error) {
	for {
		s, freed, err := c.pick(r, avoid)
		switch {
		case err != nil:
			return nil, err
		case s == nil && r.wait == 0:
			return nil, ErrNotAcquired
		case s == nil:
			select {
			case <-freed:
				continue
			case <-ctx.Done():
				return nil, because(ErrNotAcquired, context.Cause(ctx))
			}
		}
		if err = s.open(ctx); err == nil {
			return s, nil
		}
		s.vacate(r.names)
		if !isWord(err, "NOSESSION") {
			return nil, err
		}
	}
}

// pick returns a session whose names are occupied for the caller now, or the channel that is closed when there may be one.
func (c *Client) pick(r *acquire, avoid map[*session]bool) (*session, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	var alive []*session
	var freed <-chan struct{}
	var found *session
	for _, s := range c.sessions[r.ttl] {
		s.mu.Lock()
		lost := s.isLost()
		s.mu.Unlock()
		if lost {
			continue
		}
		alive = append(alive, s)
		if found != nil || avoid[s] {
			continue
		}
		wake := s.whenFreed()
		if s.occupy(r.names) {
			found = s
		} else {
			freed = wake
		}
	}
	if found == nil && (freed == nil || r.shared || r.permits > 1) {
		found = newSession(c.nodes, c.log, r.ttl)
		_ = found.occupy(r.names)
		alive = append(alive, found)
	}
	c.sessions[r.ttl] = alive
	return found, freed, nil
}

// With acquires the lock, runs the function, and releases the lock. The function's context ends when the lock is lost, with the cause
// ErrLost, or with ctx. With returns the function's error, or why the lock was not acquired. The release has a context of its own and
// its failure is no error: the work is done, and the lock is given back in the background.
func (c *Client) With(ctx context.Context, name string, run func(context.Context, *Lease) error, options ...Option) error {
	l, err := c.Acquire(ctx, name, options...)
	if err != nil {
		return err
	}
	defer func() { _ = l.Release(context.WithoutCancel(ctx)) }()
	return l.run(ctx, run)
}

func (l *Lease) run(ctx context.Context, run func(context.Context, *Lease) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	defer stop()
	return run(inner, l)
}

// Elect runs the function while this process leads: while it holds the lock. When the lock is lost the function's context ends; once
// the function has returned, Elect stands for election again. It ends when the context does, or when the function returns while it
// still leads: it then resigns, and returns the function's error.
func (c *Client) Elect(ctx context.Context, name string, run func(context.Context, *Lease) error, options ...Option) error {
	options = append(options[:len(options):len(options)], Wait(-1))
	for ctx.Err() == nil {
		l, err := c.Acquire(ctx, name, options...)
		switch {
		case err == nil:
			err = l.run(ctx, run)
			lost := errors.Is(l.Err(), ErrLost)
			_ = l.Release(context.WithoutCancel(ctx))
			if !lost {
				return err
			}
		case isRefusal(err) || errors.Is(err, ErrClosed):
			return err
		default:
			rest(ctx, time.Second)
		}
	}
	return context.Cause(ctx)
}

// Close ends the client's sessions, and so its leases, with the cause ErrLost. It waits two seconds for that at most.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	sessions := c.sessions
	c.sessions = map[uint64][]*session{}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var err error
	for _, several := range sessions {
		for _, s := range several {
			err = errors.Join(err, s.close(ctx))
		}
	}
	c.nodes.close()
	return err
}

// close ends the session, also one that is being opened: it waits for the answer to that. Whoever opens it later finds it over.
func (s *session) close(ctx context.Context) error {
	ended := s.endLeases()
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		return because(ErrUncertain, context.Cause(ctx))
	}
	ended = s.endLeases() || ended
	s.mu.Lock()
	if s.state == nil {
		s.state = &leaseState{state: Lost}
	}
	s.mu.Unlock()
	if !ended {
		return nil
	}
	_, err := s.nodes.ask(ctx, s.request([]any{"SESSION", "CLOSE", s.owner}))
	return err
}

// endLeases makes the session lost, and returns whether it lived.
func (s *session) endLeases() bool {
	s.mu.Lock()
	if s.state == nil || s.isLost() {
		s.mu.Unlock()
		return false
	}
	s.state.state = Lost
	leases := s.lose()
	s.mu.Unlock()
	s.poke()
	for _, l := range leases {
		l.end(ErrLost)
	}
	return true
}
