package leaderelection

// Laid beside client-go's own tests of its elector: see ../client_go_test.go.

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/errors"
	rl "k8s.io/client-go/tools/leaderelection/resourcelock"

	fencelock "github.com/fencelock/fencelock/src/drivers/go"
	"github.com/fencelock/fencelock/src/drivers/go/k8slock"
)

// scripted is our lock, at a real node, in a test whose script says what an API server would answer. Before each Get the node is brought to
// what the script says; an error of the script is an error of the lock; everything else is for our lock to do.
type scripted struct {
	*k8slock.Lock
	t      *testing.T
	script rl.Interface
	said   string // the holder that the script named last
}

func fenced(t *testing.T, script rl.Interface) rl.Interface {
	locks, err := fencelock.Connect(os.Getenv("FENCELOCK_URL"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	return &scripted{t: t, script: script, Lock: &k8slock.Lock{Locks: locks, Name: fmt.Sprintf("%.200s/%p", t.Name(), script),
		LockConfig: script.(*rl.LeaseLock).LockConfig}}
}

func (s *scripted) Get(ctx context.Context) (*rl.LeaderElectionRecord, []byte, error) {
	want, _, err := s.script.Get(ctx)
	if err != nil && !errors.IsNotFound(err) {
		return nil, nil, err
	}
	if want != nil && want.HolderIdentity != s.said {
		s.said = want.HolderIdentity
		s.bring(context.WithoutCancel(ctx), *want)
	}
	got, raw, err := s.Lock.Get(ctx)
	if errors.IsNotFound(err) && want != nil { // an API server keeps the Lease of a lock that is free
		got = &rl.LeaderElectionRecord{}
		raw, err = json.Marshal(got)
	}
	return got, raw, err
}

func (s *scripted) bring(ctx context.Context, want rl.LeaderElectionRecord) {
	switch {
	case want.HolderIdentity == "":
	case want.HolderIdentity == s.Identity() && s.Lease() == nil:
		want.LeaseDurationSeconds = max(want.LeaseDurationSeconds, 60)
		if err := s.Lock.Create(ctx, want); err != nil {
			s.t.Fatal(err)
		}
	case want.HolderIdentity != s.Identity(): // a holder that renews nothing
		ttl := want.LeaseDurationSeconds * 1000
		if ttl == 0 {
			ttl = 3600000
		}
		s.send("ACQUIRE", s.Name, "TTL", fmt.Sprint(ttl), "OWNER", "of-another-candidate", "VALUE", want.HolderIdentity)
	}
}

func (s *scripted) send(words ...string) {
	line := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		line += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(os.Getenv("FENCELOCK_URL"), "fencelock://"))
	if err == nil {
		defer c.Close()
		_, err = c.Write([]byte(line))
	}
	answer := make([]byte, 100)
	if err == nil {
		_, err = c.Read(answer)
	}
	if err != nil || answer[0] != ':' {
		s.t.Fatal(err, string(answer))
	}
}

func (s *scripted) Create(ctx context.Context, record rl.LeaderElectionRecord) error {
	if err := s.script.Create(ctx, record); err != nil {
		return err
	}
	return s.Lock.Create(ctx, record)
}

func (s *scripted) Update(ctx context.Context, record rl.LeaderElectionRecord) error {
	if err := s.script.Update(ctx, record); err != nil {
		return err
	}
	return s.Lock.Update(ctx, record)
}
