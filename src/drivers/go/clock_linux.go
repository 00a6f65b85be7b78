package fencelock

import (
	"syscall"
	"time"
	"unsafe"
)

// ClockName names the clock that leases are counted on.
const ClockName = "CLOCK_BOOTTIME"

const clockBoottime = 7

// now returns milliseconds of a clock that goes on while the machine is suspended. Go's own monotonic clock does not.
func now() uint64 {
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("fencelock: this kernel has no CLOCK_BOOTTIME: " + errno.Error())
	}
	return uint64(ts.Nano() / int64(time.Millisecond))
}
