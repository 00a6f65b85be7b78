package fencelock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Event is something that happened to a lock.
type Event struct {
	Lock  string // "" for a gap that concerns every lock of the pattern
	Kind  string // granted, queued, released, expired, broken, left; resync: events were missed, so look again
	Token int64
	Owner string
	Clock int64 // of the cluster, in milliseconds
}

const (
	quietMost = 5 * time.Second // after so long without an event the node is asked whether it is there
	channels  = "lock:"
)

// Watch sends the events of all locks whose names the pattern matches (*, ?, [a-z]), until the context ends and the channel is closed.
// It begins with a resync, and sends another one after each gap: after a broken connection, or when this reader was too slow.
func (c *Client) Watch(ctx context.Context, pattern string) (<-chan Event, error) {
	if pattern == "" {
		return nil, errors.New("fencelock: the pattern is empty: write * for all locks")
	}
	out := make(chan Event)
	go func() {
		defer close(out)
		pause := pauseFirst
		for at := int(c.nodes.prefer.Load()); ctx.Err() == nil; at = (at + 1) % len(c.nodes.list) {
			if c.nodes.list[at].watch(ctx, pattern, out) {
				pause = pauseFirst
			}
			rest(ctx, pause)
			pause = min(pause*2, pauseMost)
		}
	}()
	return out, nil
}

// watch returns whether it had a subscription, when that has ended.
func (x *node) watch(ctx context.Context, pattern string, out chan<- Event) bool {
	o := x.options
	o.PoolSize = 1
	client := redis.NewClient(&o)
	defer client.Close()
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	limit, cancel := context.WithTimeout(ctx, quietMost)
	sub := client.PSubscribe(limit, channels+pattern)
	cancel()
	defer sub.Close()
	had, asked := false, false
	for ctx.Err() == nil {
		got, err := sub.ReceiveTimeout(ctx, quietMost)
		var slow interface{ Timeout() bool }
		switch {
		case err == nil:
			asked = false
		case errors.As(err, &slow) && slow.Timeout() && !asked:
			asked = true
			if sub.Ping(ctx) == nil {
				continue
			}
			return had
		default:
			return had
		}
		var e Event
		switch m := got.(type) {
		case *redis.Subscription:
			had, e = true, Event{Kind: "resync"}
		case *redis.Message:
			e = eventOf(m)
		default:
			continue
		}
		select {
		case out <- e:
		case <-ctx.Done():
		}
	}
	return had
}

func eventOf(m *redis.Message) Event {
	var e Event
	if name, ok := strings.CutPrefix(m.Channel, channels); ok {
		e.Lock = name
	}
	for _, word := range strings.Fields(m.Payload) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "event":
			e.Kind = value
		case "token":
			e.Token, _ = strconv.ParseInt(value, 10, 64)
		case "owner":
			e.Owner = unescape(value)
		case "clock":
			e.Clock, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return e
}

func unescape(value string) string {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+2 < len(value) {
			if n, err := strconv.ParseUint(value[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(value[i])
	}
	return b.String()
}
