// Package pgxfence carries the token of a lease into transactions of pgx, for a PostgreSQL database that has fencelock's guard
// (src/guards/postgresql). Package pgfence is the same for database/sql.
package pgxfence

import (
	"context"

	fencelock "github.com/fencelock/fencelock/src/drivers/go"
	"github.com/fencelock/fencelock/src/drivers/go/pgfence"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Claim is pgfence.Claim.
func Claim(ctx context.Context, db DB, lease *fencelock.Lease) error {
	if err := lease.Err(); err != nil {
		return err
	}
	_, err := db.Exec(ctx, "CALL fence.claim($1, $2)", lease.Name(), lease.Token())
	return pgfence.Translate(err)
}

// Tx is pgfence.Tx.
func Tx(ctx context.Context, db DB, lease *fencelock.Lease, run func(pgx.Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return pgfence.Translate(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	if _, err = tx.Exec(ctx, "SELECT fence.use($1, $2)", lease.Name(), lease.Token()); err != nil {
		return pgfence.Translate(err)
	}
	if err = run(tx); err != nil {
		return pgfence.Translate(err)
	}
	if err = lease.Err(); err != nil {
		return err
	}
	return pgfence.Translate(tx.Commit(ctx))
}
