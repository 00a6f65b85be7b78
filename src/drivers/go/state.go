package fencelock

// What the holder of a lease may believe, and when to renew it. Pure: times and results of renewals come in; the state, and when
// the next thing is due, come out. It is the state machine of the C library (src/client/lease.h) and passes the same vectors.
//
//	sent            ttl/3          ttl/2                 deadline        the server's expiry
//	 |----- safe ----|---- safe ----|----- jeopardy -------|  lost  . . . . . .|
//	               renewal due    none has come through        margin
//
// Times count from before the request was sent, so the server's lease ends later than the client's.

// State says what the holder may believe.
type State int

const (
	// Safe: the last renewal succeeded in time.
	Safe State = iota
	// Jeopardy: no renewal has succeeded for half of the TTL, or one has failed. Begin nothing that takes long.
	Jeopardy
	// Lost is final: stop.
	Lost
)

func (s State) String() string { return [...]string{"safe", "jeopardy", "lost"}[s] }

type outcome int

const (
	renewed outcome = iota // the service said yes
	gone                   // the service said that nothing is held under this name any more
	unknown                // no answer, or a refusal for now: try again soon
)

const never = ^uint64(0)

type leaseState struct {
	ttl      uint64
	until    uint64 // the end of the lease that is believed in
	renewAt  uint64
	doubtAt  uint64
	state    State
	renewing bool
}

// leaseUntil returns from when on a lease that was asked for at sent must not be believed in. Two clocks may differ in speed by a
// hundredth, and each reads whole milliseconds.
func leaseUntil(sent, ttl uint64) uint64 { return sent + ttl - (ttl/100 + 2) }

func newLeaseState(sent, ttl uint64) *leaseState {
	l := &leaseState{ttl: ttl}
	l.begin(sent)
	return l
}

func (l *leaseState) begin(sent uint64) {
	l.until = leaseUntil(sent, l.ttl)
	l.doubtAt = sent + l.ttl/2
	l.renewAt = sent + l.ttl/3
}

// at moves on to the time and returns the state.
func (l *leaseState) at(t uint64) State {
	switch {
	case l.state == Lost || t >= l.until:
		l.state = Lost
	case t >= l.doubtAt:
		l.state = Jeopardy
	}
	return l.state
}

// next returns when the state changes or a renewal is due, if nothing else happens before.
func (l *leaseState) next() uint64 {
	if l.state == Lost {
		return never
	}
	t := l.until
	if l.state == Safe {
		t = min(t, l.doubtAt)
	}
	if !l.renewing {
		t = min(t, l.renewAt)
	}
	return t
}

func (l *leaseState) wantsRenewal(t uint64) bool {
	return l.state != Lost && !l.renewing && t >= l.renewAt && t < l.until
}

func (l *leaseState) renewalBegan() { l.renewing = true }

// renewalEnded takes the outcome of the renewal that was sent at sent. A deadline that has passed is final.
func (l *leaseState) renewalEnded(t uint64, o outcome, sent uint64) {
	l.renewing = false
	switch {
	case l.at(t) == Lost:
	case o == gone:
		l.state = Lost
	case o == unknown:
		l.state = Jeopardy
		l.renewAt = t + l.ttl/20 + 1
	default:
		l.renewed(t, sent)
	}
}

func (l *leaseState) renewed(t, sent uint64) {
	if leaseUntil(sent, l.ttl) > l.until {
		l.begin(sent)
	}
	l.state = Safe
	l.at(t)
}

func (l *leaseState) remaining(t uint64) uint64 {
	if l.state == Lost || t >= l.until {
		return 0
	}
	return l.until - t
}
