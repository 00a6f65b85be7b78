package k8stests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/src/drivers/go/fencelocktest"

	// what client-go's tests stand on
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/stretchr/testify/assert"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/client-go/tools/leaderelection"
	_ "k8s.io/klog/v2/ktesting"
	_ "k8s.io/utils/clock/testing"
)

// Tests of client-go that do not run with our lock, and why.
var skipped = []string{
	// The lease ran out by the clock of the candidate that looks on. With our lock the service says when a lease is over.
	"^TestTryAcquireOrRenewLeases$/^acquire_from_led,_unacked_object$",
	// The API server decides there which candidate holds the Lease.
	"^TestTryCoordinatedRenew$",
}

// TestClientGo runs client-go's own tests of its elector, from the module, with our lock in place of its LeaseLock.
func TestClientGo(t *testing.T) {
	found, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	copied, err := os.MkdirTemp(".", "client-go-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(copied)
	sources, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(found)), "tools/leaderelection/*.go"))
	for _, source := range append(sources, "testdata/fenced_test.go") {
		text, err := os.ReadFile(source)
		if err == nil && filepath.Base(source) == "leaderelection_test.go" {
			text = []byte(withOurLock(t, string(text)))
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(copied, filepath.Base(source)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run := exec.Command("go", "test", "-count=1", "-v", "-timeout=2m", "-skip", strings.Join(skipped, "|"), "./"+copied)
	run.Env = append(os.Environ(), "FENCELOCK_URL="+fencelocktest.Start(t))
	said, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	passed := regexp.MustCompile(`(?m)^ *--- PASS`).FindAll(said, -1)
	t.Logf("%d tests of client-go passed, %d skipped: %s", len(passed), len(skipped), strings.Join(skipped, ", "))
}

// withOurLock puts our lock around each LeaseLock, but for the one in the test of the elector's configuration, which writes into it.
func withOurLock(t *testing.T, text string) string {
	var out []string
	until, name, n := "", "", 0
	for _, line := range strings.Split(text, "\n") {
		if what, ok := strings.CutPrefix(line, "func Test"); ok {
			name = what
		}
		switch {
		case strings.HasSuffix(line, "= &rl.LeaseLock{") && !strings.HasPrefix(name, "LeaderElectionConfigValidation("):
			until = line[:len(line)-len(strings.TrimLeft(line, "\t"))] + "}"
			line = strings.Replace(line, "&rl.LeaseLock{", "fenced(t, &rl.LeaseLock{", 1)
			n++
		case until != "" && line == until:
			line, until = line+")", ""
		case strings.HasSuffix(line, "lec.Lock = lock") && !strings.HasPrefix(name, "LeaderElectionConfigValidation("):
			line = strings.Replace(line, "= lock", "= fenced(t, lock)", 1)
			n++
		}
		out = append(out, line)
	}
	if n < 5 {
		t.Fatalf("only %d places of client-go's tests make a lock: look how they do it now", n)
	}
	return strings.Join(out, "\n")
}
