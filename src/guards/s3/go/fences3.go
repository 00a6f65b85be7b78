// Package fences3 is fencelock's guard for S3 and compatible object stores with conditional writes.
//
//	fence := fences3.Objects{Client: client, Bucket: "bucket"}     // client: *s3.Client
//	err = fence.Claim(ctx, "acct", 37, "balance")                  // before the first read; every object that is going to be read
//	old, err := fence.Read(ctx, "acct", 37, "balance")             // nil when it does not exist
//	err = fence.Write(ctx, "acct", 37, "balance", []byte("110"))   // *Refused STALE when a newer token has claimed
//
// Objects look as those of fencelock_s3.py, so programs in both languages can share them: a line with mark and lock stands in
// front of the content, since an ETag is made of the content alone. An object is never deleted: Delete leaves its line, so
// that mark and lock stay. Every write names the ETag that it read, or that there was none; the bucket's policy
// (fencelock guard install s3://BUCKET) keeps others from writing without. The SDK's own retries are off for writes.
package fences3

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// TokenMax is the largest token there is.
const TokenMax = 1<<53 - 1

var headLine = regexp.MustCompile(`^fencelock 1 ([0-9]{1,16}) ([LD]) (".*")$`)

// Refused says that nothing was done. Word: STALE, NOTCLAIMED, WRONGLOCK, REFUSED, BUSY, or FOREIGN for an object that
// was there before the guard.
type Refused struct{ Word, Text string }

func (r *Refused) Error() string { return r.Word + " " + r.Text }

func refuse(word, format string, args ...any) error {
	return &Refused{word, fmt.Sprintf(format, args...)}
}

// Unknown says that the answer to a write was lost. Read again, under a new token, before anything else is written.
type Unknown struct {
	Key string
	Err error
}

func (u *Unknown) Error() string {
	return fmt.Sprintf("the outcome of a write to %q is unknown: %v", u.Key, u.Err)
}

func (u *Unknown) Unwrap() error { return u.Err }

// Client is what the guard needs of *s3.Client.
type Client interface {
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

// Objects are those of one bucket. Safe for concurrent use, as its client is. Tries: how often a write is begun again when
// another one came first; 0 is 8.
type Objects struct {
	Client Client
	Bucket string
	Tries  int
}

// object is one as it was read.
type object struct {
	etag    *string // nil: there is none
	mark    int64
	lock    string
	content []byte // nil: deleted, or never written
}

func check(lock string, token int64) error {
	if len(lock) < 1 || len(lock) > 255 || !utf8.ValidString(lock) {
		return refuse("REFUSED", "the name of a lock is UTF-8 text of 1 to 255 bytes")
	}
	if token < 1 || token > TokenMax {
		return refuse("REFUSED", "a token is a number from 1 to %d, not %d", int64(TokenMax), token)
	}
	return nil
}

// fetch returns the bytes of an object and its ETag; no ETag when there is none.
func (o *Objects) fetch(ctx context.Context, key string) ([]byte, *string, error) {
	found, err := o.Client.GetObject(ctx, &s3.GetObjectInput{Bucket: &o.Bucket, Key: &key})
	var none *types.NoSuchKey
	if errors.As(err, &none) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	defer found.Body.Close()
	body, err := io.ReadAll(found.Body)
	if err == nil && found.ETag == nil {
		err = fmt.Errorf("the store told no ETag of %q", key)
	}
	return body, found.ETag, err
}

func (o *Objects) get(ctx context.Context, key string) (object, error) {
	body, etag, err := o.fetch(ctx, key)
	if err != nil || etag == nil {
		return object{}, err
	}
	head, content, newline := bytes.Cut(body, []byte{'\n'})
	parts := headLine.FindSubmatch(head)
	found := object{etag: etag}
	if newline && parts != nil {
		found.mark, err = strconv.ParseInt(string(parts[1]), 10, 64)
		if err == nil {
			err = json.Unmarshal(parts[3], &found.lock)
		}
	}
	if !newline || parts == nil || err != nil {
		return object{}, refuse("FOREIGN", "%q was there before the guard: Adopt it", key)
	}
	if parts[2][0] == 'L' {
		found.content = append([]byte{}, content...)
	}
	return found, nil
}

// put writes if nobody has written since before was read. False: somebody has.
func (o *Objects) put(ctx context.Context, key string, before *string, lock string, token int64, content []byte) (bool, error) {
	name, err := json.Marshal(lock)
	if err != nil {
		return false, err
	}
	state := 'L'
	if content == nil {
		state = 'D'
	}
	body := append(fmt.Appendf(nil, "fencelock 1 %d %c %s\n", token, state, name), content...)
	in := &s3.PutObjectInput{Bucket: &o.Bucket, Key: &key, Body: bytes.NewReader(body), IfMatch: before}
	if before == nil {
		in.IfNoneMatch = aws.String("*")
	}
	_, err = o.Client.PutObject(ctx, in, func(options *s3.Options) {
		options.Retryer, options.RetryMaxAttempts = aws.NopRetryer{}, 1
	})
	if err == nil {
		return true, nil
	}
	var answer *smithyhttp.ResponseError
	if !errors.As(err, &answer) || answer.HTTPStatusCode() >= 500 || answer.HTTPStatusCode() < 400 {
		return false, &Unknown{key, err}
	}
	switch answer.HTTPStatusCode() {
	case http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed:
		return false, nil
	}
	return false, err
}

func judge(key, lock string, token int64, found object) error {
	if found.etag != nil && found.lock != lock {
		return refuse("WRONGLOCK", "%q belongs to lock %q", key, found.lock)
	}
	if token < found.mark {
		return refuse("STALE", "token %d is below the mark %d of lock %q", token, found.mark, lock)
	}
	return nil
}

// again calls step until it is done, at most Tries times.
func (o *Objects) again(key string, step func() (bool, error)) error {
	tries := o.Tries
	if tries < 1 {
		tries = 8
	}
	for ; tries > 0; tries-- {
		if done, err := step(); done || err != nil {
			return err
		}
	}
	return refuse("BUSY", "others write %q all the time; nothing was written", key)
}

// Claim marks every object before any is read. It creates those that do not exist, without content.
func (o *Objects) Claim(ctx context.Context, lock string, token int64, keys ...string) error {
	if err := check(lock, token); err != nil {
		return err
	}
	for _, key := range keys {
		err := o.again(key, func() (bool, error) {
			found, err := o.get(ctx, key)
			if err == nil {
				err = judge(key, lock, token, found)
			}
			if err != nil || found.mark == token {
				return true, err
			}
			return o.put(ctx, key, found.etag, lock, token, found.content)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Read returns the content, or nil when there is none. It claims, so that nothing older is written behind it.
func (o *Objects) Read(ctx context.Context, lock string, token int64, key string) ([]byte, error) {
	if err := o.Claim(ctx, lock, token, key); err != nil {
		return nil, err
	}
	found, err := o.get(ctx, key)
	if err == nil {
		err = judge(key, lock, token, found)
	}
	if err != nil {
		return nil, err
	}
	return found.content, nil
}

// Peek returns content and mark. For looking, not for read-modify-write.
func (o *Objects) Peek(ctx context.Context, key string) ([]byte, int64, error) {
	found, err := o.get(ctx, key)
	return found.content, found.mark, err
}

// Write replaces the content of what was claimed. A nil content is an empty one.
func (o *Objects) Write(ctx context.Context, lock string, token int64, key string, content []byte) error {
	if content == nil {
		content = []byte{}
	}
	return o.replace(ctx, lock, token, key, content)
}

// Delete leaves mark and lock of the object, and no content.
func (o *Objects) Delete(ctx context.Context, lock string, token int64, key string) error {
	return o.replace(ctx, lock, token, key, nil)
}

func (o *Objects) replace(ctx context.Context, lock string, token int64, key string, content []byte) error {
	if err := check(lock, token); err != nil {
		return err
	}
	return o.again(key, func() (bool, error) {
		found, err := o.get(ctx, key)
		if err == nil {
			err = judge(key, lock, token, found)
		}
		if err == nil && found.mark != token {
			err = refuse("NOTCLAIMED", "token %d is above the mark %d of %q: claim, and read again", token, found.mark, key)
		}
		if err != nil {
			return true, err
		}
		return o.put(ctx, key, found.etag, lock, token, content)
	})
}

// Adopt takes in an object that was there before, with its content.
func (o *Objects) Adopt(ctx context.Context, lock string, token int64, key string) error {
	if err := check(lock, token); err != nil {
		return err
	}
	body, etag, err := o.fetch(ctx, key)
	if err != nil {
		return err
	} else if etag == nil {
		return refuse("REFUSED", "there is no %q", key)
	} else if bytes.HasPrefix(body, []byte("fencelock 1 ")) {
		return refuse("REFUSED", "%q is guarded already", key)
	}
	done, err := o.put(ctx, key, etag, lock, token, body)
	if err == nil && !done {
		err = refuse("BUSY", "%q has changed meanwhile", key)
	}
	return err
}
