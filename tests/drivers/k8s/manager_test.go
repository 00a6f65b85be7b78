// Package k8stests elects leaders of controller-runtime and of client-go with locks of a real node.
package k8stests

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	fencelock "github.com/fencelock/fencelock/src/drivers/go"
	"github.com/fencelock/fencelock/src/drivers/go/fencelocktest"
	"github.com/fencelock/fencelock/src/drivers/go/k8slock"
)

const patience = 4 * time.Minute

// candidate is one manager of controller-runtime, with a runnable that runs while it leads.
type candidate struct {
	lock   *k8slock.Lock
	terms  chan int64 // the token of each term
	ended  chan error
	cancel context.CancelFunc
}

func connect(t *testing.T, url string) *fencelock.Client {
	locks, err := fencelock.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	return locks
}

// start makes a manager whose API server is never asked: it has no controller, so nothing but the election needs one.
func start(t *testing.T, url, identity string) *candidate {
	c := &candidate{lock: &k8slock.Lock{Locks: connect(t, url), Name: "controllers/backup",
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity}}, terms: make(chan int64, 10), ended: make(chan error, 1)}
	duration, deadline, retry := 20*time.Second, 2*time.Second, 200*time.Millisecond
	mgr, err := manager.New(&rest.Config{Host: "127.0.0.1:1"}, manager.Options{LeaderElection: true, LeaderElectionResourceLockInterface: c.lock,
		LeaseDuration: &duration, RenewDeadline: &deadline, RetryPeriod: &retry, LeaderElectionReleaseOnCancel: true,
		Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		c.terms <- c.lock.Lease().Token()
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	t.Cleanup(cancel)
	go func() { c.ended <- mgr.Start(ctx) }()
	return c
}

func next[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		t.Fatal("this did not come: " + what)
		panic("")
	}
}

func TestAManagerElects(t *testing.T) {
	url := fencelocktest.Start(t)
	a := start(t, url, "a")
	one := next(t, "the first leader", a.terms)
	b := start(t, url, "b")
	for record, _, err := b.lock.Get(context.Background()); err != nil || record.HolderIdentity != "a"; record, _, err = b.lock.Get(context.Background()) {
		time.Sleep(10 * time.Millisecond)
	}
	a.cancel() // it gives the lock back
	if err := next(t, "the end of the first manager", a.ended); err != nil {
		t.Fatal(err)
	}
	two := next(t, "the second leader", b.terms)
	if two <= one {
		t.Fatal("the token of the second leader is not larger", one, two)
	}

	// An operator breaks the lock: the manager ends, as it does when it loses a Lease, and its lease says so at once.
	lease := b.lock.Lease()
	breakLock(t, url, "controllers/backup")
	if err := next(t, "the end of the second manager", b.ended); err == nil || err.Error() != "leader election lost" {
		t.Fatal(err)
	}
	if lease.Err() == nil || b.lock.Lease() != nil {
		t.Fatal("the lease is still believed in", lease.Err())
	}
	c := start(t, url, "c")
	if three := next(t, "the third leader", c.terms); three <= two {
		t.Fatal("the token of the third leader is not larger", two, three)
	}
}
