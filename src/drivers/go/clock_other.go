//go:build !linux

package fencelock

import "time"

// ClockName names the clock that leases are counted on. On this platform it stands still while the machine is suspended: after a
// suspension a holder may believe in its lease for too long. The token protects the data then.
const ClockName = "the monotonic clock of Go, which stands still in a suspension"

var started = time.Now()

func now() uint64 { return uint64(time.Since(started) / time.Millisecond) }
