package fencelock

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestClock runs itself where the boot clock is a day ahead of the monotonic one, as after a suspension of a day.
func TestClock(t *testing.T) {
	const ahead = 86400
	if was := os.Getenv("FENCELOCK_TEST_BOOT_MS"); was != "" {
		before, _ := strconv.ParseUint(was, 10, 64)
		if now() < before+ahead*1000 {
			t.Fatalf("leases are not counted on %s: %d ms, and before a suspension of a day %d ms", ClockName, now(), before)
		}
		return
	}
	again := exec.Command("unshare", "--time", "--fork", "--boottime", strconv.Itoa(ahead), os.Args[0], "-test.run", "^TestClock$")
	again.Env = append(os.Environ(), "FENCELOCK_TEST_BOOT_MS="+strconv.FormatUint(now(), 10))
	said, err := again.CombinedOutput()
	if err != nil && strings.HasPrefix(string(said), "unshare:") || again.ProcessState == nil {
		t.Skip("no time namespace can be made here: ", err, string(said))
	}
	if err != nil {
		t.Fatal(err, string(said))
	}
}
