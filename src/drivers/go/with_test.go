package fencelock_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	fencelock "github.com/fencelock/fencelock/src/drivers/go"
	"github.com/fencelock/fencelock/src/drivers/go/fencelocktest"
	"github.com/fencelock/fencelock/src/drivers/go/httpfence"
)

func connect(t *testing.T) *fencelock.Client {
	locks, err := fencelock.Connect(fencelocktest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	return locks
}

func TestWith(t *testing.T) {
	locks, ctx := connect(t), context.Background()
	mine := errors.New("of the body")
	err := locks.With(ctx, "lock", func(inner context.Context, l *fencelock.Lease) error {
		if l.Err() != nil || l.Token() < 1 || inner.Err() != nil || l.Name() != "lock" {
			t.Error("the lease is not held")
		}
		if _, err := locks.Acquire(ctx, "lock"); !errors.Is(err, fencelock.ErrNotAcquired) {
			t.Error(err)
		}
		return mine
	})
	if !errors.Is(err, mine) {
		t.Fatal(err)
	}
	l, err := locks.Acquire(ctx, "lock") // With has given it back
	if err != nil {
		t.Fatal(err)
	}
	if err = l.Release(ctx); err != nil || !errors.Is(l.Err(), fencelock.ErrReleased) || l.Remaining() != 0 {
		t.Fatal(err, l.Err())
	}
}

func TestHolder(t *testing.T) {
	locks, ctx := connect(t), context.Background()
	if h, err := locks.Holder(ctx, "lock"); h != nil || err != nil {
		t.Fatal(h, err)
	}
	l, err := locks.Acquire(ctx, "lock", fencelock.Value("me"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := locks.Holder(ctx, "lock")
	if err != nil || h == nil || h.Token != l.Token() || h.Value != "me" || h.Owner == "" || h.Label == "" {
		t.Fatal(h, err)
	}
	if _, err = locks.Acquire(ctx, "most", fencelock.Value(strings.Repeat("v", 1024))); err != nil {
		t.Fatal(err)
	}
	if _, err = locks.Acquire(ctx, "more", fencelock.Value(strings.Repeat("v", 1025))); err == nil {
		t.Fatal("a value of 1025 bytes was taken")
	}
}

func TestPanicReleases(t *testing.T) {
	locks, ctx := connect(t), context.Background()
	func() {
		defer func() { _ = recover() }()
		_ = locks.With(ctx, "lock", func(context.Context, *fencelock.Lease) error { panic("of the body") })
	}()
	if _, err := locks.Acquire(ctx, "lock"); err != nil {
		t.Fatal(err)
	}
}

func TestCancelledBodyReleases(t *testing.T) {
	locks := connect(t)
	ctx, cancel := context.WithCancel(context.Background())
	err := locks.With(ctx, "lock", func(inner context.Context, _ *fencelock.Lease) error {
		cancel()
		<-inner.Done()
		return context.Cause(inner)
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err = locks.Acquire(context.Background(), "lock", fencelock.Wait(time.Minute)); err != nil {
		t.Fatal(err)
	}
}

func TestClose(t *testing.T) {
	locks := connect(t)
	l, err := locks.Acquire(context.Background(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	if err = locks.Close(); err != nil || !errors.Is(l.Err(), fencelock.ErrLost) {
		t.Fatal(err, l.Err())
	}
	if _, err = locks.Acquire(context.Background(), "lock"); !errors.Is(err, fencelock.ErrClosed) {
		t.Fatal(err)
	}
}

func TestHeaders(t *testing.T) {
	locks, ctx := connect(t), context.Background()
	var marks httpfence.Marks
	older, newer := http.Header{}, http.Header{}
	for _, h := range []http.Header{older, newer} {
		if err := locks.With(ctx, "lock", func(_ context.Context, l *fencelock.Lease) error {
			httpfence.Set(h, l)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(marks.Admit(older), marks.Admit(newer), marks.Admit(newer)); err != nil {
		t.Fatal(err)
	}
	if err := marks.Admit(older); !errors.Is(err, fencelock.ErrStale) {
		t.Fatal(err)
	}
	if marks.Admit(http.Header{}) == nil {
		t.Fatal("a request without a token was admitted")
	}
}
