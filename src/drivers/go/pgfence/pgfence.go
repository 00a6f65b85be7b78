// Package pgfence carries the token of a lease into transactions of a PostgreSQL database that has fencelock's guard
// (src/guards/postgresql). It stands on database/sql, with the driver of your choice. Package pgxfence is the same for pgx.
package pgfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	fencelock "github.com/fencelock/fencelock/src/drivers/go"
)

// Claim tells the database of the lease: from then on it refuses every older token. Claim before the first read. When it says
// fencelock.ErrStale a newer holder has claimed: the lease is over.
func Claim(ctx context.Context, db *sql.DB, lease *fencelock.Lease) error {
	if err := lease.Err(); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, "CALL fence.claim($1, $2)", lease.Name(), lease.Token())
	return Translate(err)
}

// Tx runs the function in a transaction that carries the lease's token, and commits it. The guard refuses the writes of one that is
// stale, and the error is then fencelock.ErrStale, which no retry cures. The commit of a lost lease is not sent.
func Tx(ctx context.Context, db *sql.DB, lease *fencelock.Lease, run func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return Translate(err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if _, err = tx.ExecContext(ctx, "SELECT fence.use($1, $2)", lease.Name(), lease.Token()); err != nil {
		return Translate(err)
	}
	if err = run(tx); err != nil {
		return Translate(err)
	}
	if err = lease.Err(); err != nil {
		return err
	}
	return Translate(tx.Commit())
}

// The guard's SQLSTATEs that mean: this lease will never be admitted.
const stale = "44L01"

// Translate makes fencelock.ErrStale of the guard's STALE, and leaves other errors as they are. The new error does not wrap the driver's
// one, which frameworks take for a passing failure of the server.
func Translate(err error) error {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) && coded.SQLState() == stale {
		return fmt.Errorf("%w: %s", fencelock.ErrStale, err.Error())
	}
	return err
}
