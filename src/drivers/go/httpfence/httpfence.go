// Package httpfence carries the token of a lease in a header, to a service of your own that checks it.
package httpfence

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"

	fencelock "github.com/fencelock/fencelock/src/drivers/go"
)

// Headers of a request that is sent under a lock.
const (
	HeaderLock  = "Fencing-Lock"
	HeaderToken = "Fencing-Token"
)

// Set puts lock and token into the header of a request.
func Set(h http.Header, lease *fencelock.Lease) {
	h.Set(HeaderLock, lease.Name())
	h.Set(HeaderToken, strconv.FormatInt(lease.Token(), 10))
}

// Marks are the receiver's side, for a service whose data dies with its process: the highest token of each lock. A service with durable
// data keeps its marks there, in the transaction that changes the data (docs/FENCING.md).
type Marks struct {
	mu    sync.Mutex
	marks map[string]int64
}

// Admit raises the mark to the request's token, and returns fencelock.ErrStale when a newer one has been here. The operation must be
// done before another one of the same lock is admitted.
func (m *Marks) Admit(h http.Header) error {
	lock := h.Get(HeaderLock)
	token, err := strconv.ParseInt(h.Get(HeaderToken), 10, 64)
	if lock == "" || err != nil || token < 1 || token > 1<<53-1 {
		return fmt.Errorf("fencelock: the request has no %s and %s", HeaderLock, HeaderToken)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if token < m.marks[lock] {
		return fmt.Errorf("%w: token %d, mark %d", fencelock.ErrStale, token, m.marks[lock])
	}
	if m.marks == nil {
		m.marks = map[string]int64{}
	}
	m.marks[lock] = token
	return nil
}
