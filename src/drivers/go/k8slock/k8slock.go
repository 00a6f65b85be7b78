// Package k8slock lets client-go and controller-runtime elect a leader with a lock of a fencelock cluster.
//
//	lock := &k8slock.Lock{Locks: locks, Name: "controllers/backup", LockConfig: resourcelock.ResourceLockConfig{Identity: hostname}}
//	mgr, err := ctrl.NewManager(config, ctrl.Options{LeaderElection: true, LeaderElectionResourceLockInterface: lock})
//
// The leader's writes carry lock.Lease().Token(). The driver renews the lease; LeaseDuration, RenewDeadline and RetryPeriod say how
// often client-go looks at it, and how long it leads without a renewal.
package k8slock

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	fencelock "github.com/fencelock/fencelock/src/drivers/go"
)

var _ resourcelock.Interface = (*Lock)(nil)

// Lock is a resourcelock.Interface. Each candidate has one of its own.
type Lock struct {
	Locks      *fencelock.Client
	Name       string // of the lock
	LockConfig resourcelock.ResourceLockConfig

	mu     sync.Mutex
	lease  *fencelock.Lease                  // from the grant to the end of the term, also when it is lost meanwhile
	record resourcelock.LeaderElectionRecord // what the elector wrote last
}

// Lease is the lease of the present term; nil: this candidate does not lead. Its Context ends when the lock is lost, which is sooner than
// client-go notices.
func (k *Lock) Lease() *fencelock.Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease
}

// Get tells who leads. A lock that is free is not found.
func (k *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	k.mu.Lock()
	lease, record := k.lease, k.record
	k.mu.Unlock()
	if lease == nil {
		holder, err := k.Locks.Holder(ctx, k.Name)
		if err != nil {
			return nil, nil, err
		}
		if holder == nil {
			return nil, nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), k.Name)
		}
		record = k.recordOf(holder)
	} else if err := lease.Err(); err != nil {
		return nil, nil, err
	}
	raw, err := json.Marshal(record)
	return &record, raw, err
}

// foreverS is a lease that ends when the service says so, and not when an elector has waited for long enough.
const foreverS = 1 << 30

func (k *Lock) recordOf(holder *fencelock.Holder) resourcelock.LeaderElectionRecord {
	who := holder.Value
	switch who {
	case "":
		who = holder.Label + " " + holder.Owner
	case k.Identity():
		who += " (another lease)" // of a process before this one: the owner is the lease
	}
	return resourcelock.LeaderElectionRecord{HolderIdentity: who, LeaseDurationSeconds: foreverS,
		AcquireTime: metav1.NewTime(time.Now().Add(-holder.Age))}
}

// Create begins a term.
func (k *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return k.Update(ctx, record)
}

// Update begins a term, goes on with it, or ends it if the record names nobody. A term whose lease is lost does not go on, also when the
// lock is free again: others may have led meanwhile. It fails as soon as less than a LeaseDuration is left, so that client-go, which
// leads on for a RenewDeadline, ends before the lease does.
func (k *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	lease := k.Lease()
	if record.HolderIdentity == "" {
		return k.resign(context.WithoutCancel(ctx), lease) // the term is over, whatever ended it
	}
	duration := time.Duration(record.LeaseDurationSeconds) * time.Second
	began := lease == nil
	if began {
		var err error
		if lease, err = k.Locks.Acquire(ctx, k.Name, fencelock.TTL(2*duration), fencelock.Value(k.Identity())); err != nil {
			return err
		}
	}
	err := lease.Err()
	if left := lease.Remaining(); err == nil && left < duration {
		err = fmt.Errorf("k8slock: no renewal of %q has succeeded for some time, and %v of its lease are left", k.Name, left)
	}
	if err != nil {
		if began {
			_ = lease.Release(context.WithoutCancel(ctx))
		}
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lease, k.record = lease, record
	return nil
}

func (k *Lock) resign(ctx context.Context, lease *fencelock.Lease) error {
	if lease == nil {
		return nil
	}
	return lease.Release(ctx)
}

// RecordEvent is told of the end of a term. A lease that was not given back by then (ReleaseOnCancel is off, or no node answered) is held
// for another LeaseDuration, as client-go's other locks are.
func (k *Lock) RecordEvent(what string) {
	if what == "stopped leading" {
		k.mu.Lock()
		if lease := k.lease; lease != nil && lease.Err() == nil {
			time.AfterFunc(time.Duration(k.record.LeaseDurationSeconds)*time.Second, func() { _ = lease.Release(context.Background()) })
		}
		k.lease = nil
		k.mu.Unlock()
	}
	if k.LockConfig.EventRecorder != nil {
		subject := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: coordinationv1.SchemeGroupVersion.String()},
			ObjectMeta: metav1.ObjectMeta{Name: k.Name, UID: types.UID(k.Name)}}
		k.LockConfig.EventRecorder.Eventf(subject, corev1.EventTypeNormal, "LeaderElection", "%s %s", k.Identity(), what)
	}
}

// Identity names this candidate to the others.
func (k *Lock) Identity() string { return k.LockConfig.Identity }

// Describe names the lock in messages.
func (k *Lock) Describe() string { return "fencelock " + k.Name }
