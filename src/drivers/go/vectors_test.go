package fencelock

import (
	"encoding/json"
	"os"
	"testing"
)

// TestVectors runs the C library's vectors of the lease (tests/vectors/lease/lease.json), but for what this driver has not: a reserve, and
// the longest hold.
func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("../../../tests/vectors/lease/lease.json")
	if os.IsNotExist(err) {
		t.Skip("the vectors are not beside the driver")
	}
	var cases []struct {
		Name   string
		Events []struct {
			Event                   string
			At_ms, Sent_ms, Ttl_ms  uint64
			Reserve_ms, Max_hold_ms uint64
			Status                  string
			Then                    struct {
				State, Request       string
				Deadline_ms, Next_ms *uint64
				Remaining_ms         uint64
			}
		}
	}
	if err == nil {
		err = json.Unmarshal(raw, &cases)
	}
	if err != nil || len(cases) == 0 {
		t.Fatal(err)
	}
	ran := 0
	for _, c := range cases {
		if g := c.Events[0]; g.Reserve_ms != 0 || g.Max_hold_ms != 0 {
			continue
		}
		ran++
		var l *leaseState
		for _, e := range c.Events {
			switch e.Event {
			case "granted":
				l = newLeaseState(e.Sent_ms, e.Ttl_ms)
			case "renewal_sent":
				l.renewalBegan()
			case "renewal_answered":
				how := map[string]outcome{"OK": renewed, "ENOTHELD": gone, "ENOSESSION": gone}
				o, known := how[e.Status]
				if !known {
					o = unknown
				}
				l.renewalEnded(e.At_ms, o, e.Sent_ms)
			case "given_back":
				l.state = Lost
			}
			state := l.at(e.At_ms)
			if state.String() != e.Then.State || l.remaining(e.At_ms) != e.Then.Remaining_ms || l.wantsRenewal(e.At_ms) != (e.Then.Request == "renew") {
				t.Errorf("%s, %s at %d: %v, %d left, renew %v; want %+v", c.Name, e.Event, e.At_ms, state, l.remaining(e.At_ms), l.wantsRenewal(e.At_ms), e.Then)
			}
			if want := e.Then.Next_ms; state != Lost && want != nil && l.next() != *want {
				t.Errorf("%s, %s at %d: next %d; want %d", c.Name, e.Event, e.At_ms, l.next(), *want)
			}
		}
	}
	t.Logf("%d of %d cases", ran, len(cases))
}
