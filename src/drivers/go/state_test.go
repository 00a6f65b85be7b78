package fencelock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/src/drivers/go/fencelocktest"
)

func TestLease(t *testing.T) {
	l := newLeaseState(1000, 10000) // sent at 1000: believed in until 1000 + 10000 - 102
	step := func(at uint64, want State, next uint64) {
		t.Helper()
		if got := l.at(at); got != want || l.next() != next {
			t.Fatalf("at %d: %v, next %d; want %v, %d", at, got, l.next(), want, next)
		}
	}
	step(1000, Safe, 4333)
	step(4332, Safe, 4333)
	if l.wantsRenewal(4332) || !l.wantsRenewal(4333) {
		t.Fatal("a renewal is due at a third of the TTL")
	}
	l.renewalBegan()
	step(4333, Safe, 6000)
	step(6000, Jeopardy, 10898)
	l.renewalEnded(6100, renewed, 4333)
	step(6100, Safe, 7666)
	l.renewalBegan()
	l.renewalEnded(7700, unknown, 7666)
	step(7700, Jeopardy, 8201) // again after a twentieth of the TTL and a millisecond
	l.renewalBegan()
	l.renewalEnded(8300, renewed, 4000) // an answer to an older request gains nothing
	step(8300, Safe, 8201)
	if l.remaining(8300) != 4333+10000-102-8300 {
		t.Fatal(l.remaining(8300))
	}
	step(14230, Jeopardy, 8201) // a renewal is due all the time
	step(14231, Lost, never)
	l.renewing = true
	l.renewalEnded(14232, renewed, 14000)
	step(14232, Lost, never) // a lost lease stays lost
}

func TestGone(t *testing.T) {
	l := newLeaseState(0, 1000)
	l.renewalBegan()
	l.renewalEnded(400, gone, 333)
	if l.at(400) != Lost || l.remaining(400) != 0 {
		t.Fatal("the service does not know it any more")
	}
}

// An answer to an open that comes after the deadline revives no lease of the session.
func TestOpenedTooLate(t *testing.T) {
	s := newSession(nil, nil, 1000)
	if err := s.opened(now()); err != nil || s.isLost() {
		t.Fatal(err)
	}
	s.state.until = now()
	if err := s.opened(now()); err != errOver || !s.isLost() {
		t.Fatal(err)
	}
}

// Close ends a session that is being opened, too: else its lock would stay taken until the TTL is over.
func TestCloseWhileASessionOpens(t *testing.T) {
	url, ctx := fencelocktest.Start(t), context.Background()
	locks, err := Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(locks.nodes, locks.log, 60000)
	locks.sessions[s.ttl] = []*session{s}
	s.gate <- struct{}{} // as open() does
	closed := make(chan error)
	go func() { closed <- locks.Close() }()
	if _, err = locks.nodes.ask(ctx, s.request([]any{"SESSION", "OPEN", s.owner, "TTL", s.ttl})); err != nil {
		t.Fatal(err)
	}
	_ = s.opened(now())
	<-s.gate
	if err = <-closed; err != nil || s.opened(now()) != errOver {
		t.Fatal(err)
	}
	other, err := Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	a, err := other.nodes.ask(ctx, s.request([]any{"SESSION", "RENEW", s.owner}))
	if err != nil || a.replies[0] != int64(0) {
		t.Fatal("the session lives on: ", a, err)
	}
}

func TestURL(t *testing.T) {
	good := map[string]target{
		"fencelock://a:1":              {addresses: []string{"a:1"}},
		"fencelock://a:1,[::1]:65535/": {addresses: []string{"a:1", "[::1]:65535"}},
		"fencelocks://u:p%40%3a@a:1":   {tls: true, addresses: []string{"a:1"}, user: "u", password: "p@:"},
		"fencelock://u:p@a:1,b:2,c:3":  {addresses: []string{"a:1", "b:2", "c:3"}, user: "u", password: "p"},
	}
	for text, want := range good {
		got, err := parse(text)
		if err != nil || got.tls != want.tls || got.user != want.user || got.password != want.password || len(got.addresses) != len(want.addresses) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "redis://a:1", "a:1", "fencelock://", "fencelock://a", "fencelock://a:0", "fencelock://a:65536",
		"fencelock://:1", "fencelock://a:1,", "fencelock://u@a:1", "fencelock://u:@a:1", "fencelock://:p@a:1", "fencelock://u:%4@a:1"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// A later attempt has a number, by which the service knows an earlier one that comes late.
func TestAttempts(t *testing.T) {
	r, err := newAcquire("lock", nil)
	if err != nil {
		t.Fatal(err)
	}
	if first := fmt.Sprint(r.words("owner", 1, 0)); first != "[ACQUIRE lock SESSION owner]" {
		t.Error(first)
	}
	if second := fmt.Sprint(r.words("owner", 2, time.Second)); second != "[ACQUIRE lock SESSION owner WAIT 1000 ATTEMPT 2]" {
		t.Error(second)
	}
}
