// Package s3fence carries the token of a lease into objects of S3 and compatible stores that have fencelock's guard (src/guards/s3).
package s3fence

import (
	"context"
	"errors"
	"fmt"

	fencelock "github.com/fencelock/fencelock/src/drivers/go"
	fences3 "github.com/fencelock/fencelock/src/guards/s3/go"
)

// Fence has the objects of one bucket under the token of a lease. Its errors are fencelock.ErrStale (a newer holder has claimed, and
// nothing was written), fencelock.ErrUncertain (the answer to a write was lost: take the lock again, and read), what lease.Err says, and
// *fences3.Refused for other reasons of the guard.
type Fence struct {
	objects *fences3.Objects
	lease   *fencelock.Lease
}

// Claim marks each of these objects: from then on it refuses every older token. Claim all that you are going to read, before the first
// read.
func Claim(ctx context.Context, objects *fences3.Objects, lease *fencelock.Lease, keys ...string) (*Fence, error) {
	f := &Fence{objects, lease}
	err := f.do(func(lock string, token int64) error { return objects.Claim(ctx, lock, token, keys...) })
	return f, err
}

// Read returns the content; nil when there is none.
func (f *Fence) Read(ctx context.Context, key string) (content []byte, err error) {
	err = f.do(func(lock string, token int64) (err error) {
		content, err = f.objects.Read(ctx, lock, token, key)
		return err
	})
	return content, err
}

// Write replaces the content of an object that was claimed.
func (f *Fence) Write(ctx context.Context, key string, content []byte) error {
	return f.do(func(lock string, token int64) error { return f.objects.Write(ctx, lock, token, key, content) })
}

// Delete leaves the mark of the object, and no content.
func (f *Fence) Delete(ctx context.Context, key string) error {
	return f.do(func(lock string, token int64) error { return f.objects.Delete(ctx, lock, token, key) })
}

func (f *Fence) do(operation func(lock string, token int64) error) error {
	if err := f.lease.Err(); err != nil {
		return err
	}
	err := operation(f.lease.Name(), f.lease.Token())
	var refused *fences3.Refused
	var unknown *fences3.Unknown
	switch {
	case errors.As(err, &refused) && refused.Word == "STALE":
		return fmt.Errorf("%w: %s", fencelock.ErrStale, err.Error())
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: %w", fencelock.ErrUncertain, err)
	}
	return err
}
