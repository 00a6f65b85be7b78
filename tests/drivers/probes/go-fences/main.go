// Each fence of the Go driver, with an older and a newer lease of one lock: see tests/drivers/suite, test_fences.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	fencelock "github.com/fencelock/fencelock/src/drivers/go"
	"github.com/fencelock/fencelock/src/drivers/go/pgfence"
	"github.com/fencelock/fencelock/src/drivers/go/pgxfence"
	"github.com/fencelock/fencelock/src/drivers/go/s3fence"
	fences3 "github.com/fencelock/fencelock/src/guards/s3/go"
)

const add = "UPDATE account SET balance = balance + 1 WHERE lock = 'job'"

var ctx = context.Background()

// must ends the program unless err is what was wanted; nil: no error.
func must(what string, err, want error) {
	var driver *pgconn.PgError
	if !errors.Is(err, want) || want == nil && err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v, and not %v\n", what, err, want)
		os.Exit(1)
	}
	if errors.Is(want, fencelock.ErrStale) && errors.As(err, &driver) {
		fmt.Fprintf(os.Stderr, "%s: the error of the database is inside, so frameworks may repeat it: %v\n", what, err)
		os.Exit(1)
	}
}

// fence claims, and writes in a transaction.
type fence struct {
	what         string
	claim, write func(*fencelock.Lease) error
}

func main() {
	locks, err := fencelock.Connect(os.Getenv("FENCELOCK_URL"))
	must("Connect", err, nil)
	db, err := sql.Open("pgx", os.Getenv("POSTGRES_URL"))
	must("sql.Open", err, nil)
	pool, err := pgxpool.New(ctx, os.Getenv("POSTGRES_URL"))
	must("pgxpool.New", err, nil)
	attack(locks, fence{"pgfence", func(l *fencelock.Lease) error { return pgfence.Claim(ctx, db, l) }, func(l *fencelock.Lease) error {
		return pgfence.Tx(ctx, db, l, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, add)
			return err
		})
	}})
	attack(locks, fence{"pgxfence", func(l *fencelock.Lease) error { return pgxfence.Claim(ctx, pool, l) }, func(l *fencelock.Lease) error {
		return pgxfence.Tx(ctx, pool, l, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, add)
			return err
		})
	}})
	exhausted(locks, pool)
	if url := os.Getenv("S3_URL"); url != "" {
		objects(locks, url)
	}
}

// twice gives two leases of one lock, the older one of a client that does not know yet that it is over.
func twice(locks *fencelock.Client, between func(older *fencelock.Lease), then func(older, newer *fencelock.Lease)) {
	url := os.Getenv("FENCELOCK_URL")
	other, err := fencelock.Connect(url)
	must("Connect", err, nil)
	defer other.Close()
	older, err := other.Acquire(ctx, "job", fencelock.TTL(time.Hour), fencelock.Wait(4*time.Minute))
	must("Acquire", err, nil)
	between(older)
	breakLock(url)
	newer, err := locks.Acquire(ctx, "job", fencelock.Wait(4*time.Minute))
	must("Acquire", err, nil)
	then(older, newer)
	must("Release", newer.Release(ctx), nil)
}

func attack(locks *fencelock.Client, f fence) {
	twice(locks, func(older *fencelock.Lease) {
		must(f.what+": a claim", f.claim(older), nil)
		must(f.what+": a write", f.write(older), nil)
	}, func(older, newer *fencelock.Lease) {
		must(f.what+": a claim of the newer one", f.claim(newer), nil)
		must(f.what+": a write of the older one", f.write(older), fencelock.ErrStale)
		must(f.what+": a claim of the older one", f.claim(older), fencelock.ErrStale)
		must(f.what+": a write of the newer one", f.write(newer), nil)
	})
}

// exhausted: no connection is free. The fence waits for one as long as its context allows, and the lease is renewed meanwhile.
func exhausted(locks *fencelock.Client, pool *pgxpool.Pool) {
	lease, err := locks.Acquire(ctx, "job", fencelock.Wait(4*time.Minute))
	must("Acquire", err, nil)
	var taken []*pgxpool.Conn
	for range pool.Config().MaxConns {
		c, err := pool.Acquire(ctx)
		must("a connection", err, nil)
		taken = append(taken, c)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	must("a claim without a connection", pgxfence.Claim(short, pool, lease), context.DeadlineExceeded)
	var done atomic.Bool
	claimed := make(chan error)
	go func() {
		err := pgxfence.Claim(ctx, pool, lease)
		done.Store(true)
		claimed <- err
	}()
	if done.Load() {
		must("a claim that waits for a connection", errors.New("it came back"), nil)
	}
	for _, c := range taken {
		c.Release()
	}
	must("a claim after the pool was exhausted", <-claimed, nil)
	must("the lease", lease.Release(ctx), nil)
}

func objects(locks *fencelock.Client, url string) {
	client := s3.New(s3.Options{BaseEndpoint: &url, Region: "us-east-1", UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "any", SecretAccessKey: "any"}, nil
		})})
	_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("objects")})
	must("CreateBucket", err, nil)
	bucket := &fences3.Objects{Client: client, Bucket: "objects"}
	var late *s3fence.Fence
	twice(locks, func(older *fencelock.Lease) {
		late, err = s3fence.Claim(ctx, bucket, older, "key")
		must("s3fence: a claim", err, nil)
		must("s3fence: a write", late.Write(ctx, "key", []byte("100")), nil)
	}, func(older, newer *fencelock.Lease) {
		good, err := s3fence.Claim(ctx, bucket, newer, "key")
		must("s3fence: a claim of the newer one", err, nil)
		must("s3fence: a late write", late.Write(ctx, "key", []byte("late")), fencelock.ErrStale)
		must("s3fence: a late deletion", late.Delete(ctx, "key"), fencelock.ErrStale)
		_, err = s3fence.Claim(ctx, bucket, older, "key")
		must("s3fence: a late claim", err, fencelock.ErrStale)
		content, err := good.Read(ctx, "key")
		if must("s3fence: a read", err, nil); string(content) != "100" {
			must("s3fence: a read", fmt.Errorf("it read %q", content), nil)
		}
		must("s3fence: a write of the newer one", good.Write(ctx, "key", []byte("1000")), nil)
		must("s3fence: a deletion", good.Delete(ctx, "key"), nil)
	})
}
