package k8stests

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	fencelock "github.com/fencelock/fencelock/src/drivers/go"
	"github.com/fencelock/fencelock/src/drivers/go/fencelocktest"
	"github.com/fencelock/fencelock/src/drivers/go/k8slock"
)

// breakLock is an operator's BREAK.
func breakLock(t *testing.T, url, name string) {
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "fencelock://"))
	if err == nil {
		defer c.Close()
		_, err = c.Write([]byte("BREAK " + name + "\r\n"))
	}
	answer := make([]byte, 100)
	if err == nil {
		_, err = c.Read(answer)
	}
	if err != nil || answer[0] == '-' {
		t.Fatal(err, string(answer))
	}
}

func record(identity string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: 20}
}

func candidates(t *testing.T) (string, *k8slock.Lock, *k8slock.Lock) {
	url := fencelocktest.Start(t)
	lock := func(identity string) *k8slock.Lock {
		return &k8slock.Lock{Locks: connect(t, url), Name: "lock", LockConfig: resourcelock.ResourceLockConfig{Identity: identity}}
	}
	return url, lock("a"), lock("b")
}

// A term ends with its lease, also when the lock is free again: the elector must say so before there is another one.
func TestALostTermDoesNotGoOn(t *testing.T) {
	url, a, _ := candidates(t)
	ctx := context.Background()
	if err := a.Create(ctx, record("a")); err != nil {
		t.Fatal(err)
	}
	lease := a.Lease()
	breakLock(t, url, "lock")
	<-lease.Lost()
	if err := a.Update(ctx, record("a")); !errors.Is(err, fencelock.ErrLost) {
		t.Fatal(err)
	}
	if _, _, err := a.Get(ctx); !errors.Is(err, fencelock.ErrLost) {
		t.Fatal(err)
	}
	a.RecordEvent("stopped leading")
	if _, _, err := a.Get(ctx); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err := a.Create(ctx, record("a")); err != nil || a.Lease().Token() <= lease.Token() {
		t.Fatal(err)
	}
}

func TestOthersAreTold(t *testing.T) {
	_, a, b := candidates(t)
	ctx := context.Background()
	if err := a.Create(ctx, record("a")); err != nil {
		t.Fatal(err)
	}
	if got, _, err := b.Get(ctx); err != nil || got.HolderIdentity != "a" {
		t.Fatal(got, err)
	}
	if err := b.Update(ctx, record("b")); !errors.Is(err, fencelock.ErrNotAcquired) || b.Lease() != nil {
		t.Fatal(err)
	}
	if err := a.Update(ctx, record("")); err != nil { // resigns
		t.Fatal(err)
	}
	if err := b.Update(ctx, record("b")); err != nil {
		t.Fatal(err)
	}
	same := &k8slock.Lock{Locks: a.Locks, Name: "lock", LockConfig: resourcelock.ResourceLockConfig{Identity: "b"}}
	if got, _, err := same.Get(ctx); err != nil || got.HolderIdentity == "b" {
		t.Fatal("another lease under the same identity is taken for its own", got, err)
	}
}

// Without ReleaseOnCancel the lock stays held for a LeaseDuration, and no longer.
func TestAnEndWithoutARelease(t *testing.T) {
	_, a, b := candidates(t)
	ctx := context.Background()
	short := record("a")
	short.LeaseDurationSeconds = 2
	if err := a.Create(ctx, short); err != nil {
		t.Fatal(err)
	}
	lease := a.Lease()
	a.RecordEvent("stopped leading")
	if a.Lease() != nil {
		t.Fatal("the term goes on")
	}
	for end := time.Now().Add(patience); b.Update(ctx, record("b")) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the lock is held for ever")
		}
	}
	if lease.Err() == nil || b.Lease().Token() <= lease.Token() {
		t.Fatal("two hold the lock")
	}
}
