//! Carries the token of a lease into transactions of a PostgreSQL database that has fencelock's guard (src/guards/postgresql). It stands on
//! tokio-postgres.

use crate::{Error, Lease};
use std::ops::Deref;
use tokio_postgres::{Client, Transaction};

// The guard's SQLSTATE that means: this lease will never be admitted.
const STALE: &str = "44L01";

impl From<tokio_postgres::Error> for Error {
    /// Error::Stale of the guard's refusal, without the driver's error inside, which frameworks take for a passing failure of the server.
    fn from(e: tokio_postgres::Error) -> Error {
        match e.as_db_error() {
            Some(said) if said.code().code() == STALE => Error::Stale(said.message().to_owned()),
            _ => Error::Postgres(e),
        }
    }
}

/// A lease that the database knows of.
pub struct Fence {
    lease: Lease,
}

/// A transaction that carries the token. Dropped, it is rolled back.
pub struct Fenced<'a> {
    transaction: Transaction<'a>,
    lease: &'a Lease,
}

impl Fence {
    /// Tells the database of the lease: from then on it refuses every older token. Claim before the first read. Error::Stale says that a newer
    /// holder has claimed: the lease is over.
    pub async fn claim(db: &Client, lease: &Lease) -> Result<Fence, Error> {
        lease.check()?;
        db.execute("CALL fence.claim($1::text, $2::bigint)", &[&lease.name(), &token(lease)]).await?;
        Ok(Fence { lease: lease.clone() })
    }

    /// Begins a transaction that carries the token. The guard refuses the writes of a lease that is stale: Error::Stale, which no retry cures.
    pub async fn transaction<'a>(&'a self, db: &'a mut Client) -> Result<Fenced<'a>, Error> {
        let transaction = db.transaction().await?;
        transaction.execute("SELECT fence.use($1::text, $2::bigint)", &[&self.lease.name(), &token(&self.lease)]).await?;
        Ok(Fenced { transaction, lease: &self.lease })
    }
}

impl<'a> Deref for Fenced<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.transaction
    }
}

impl Fenced<'_> {
    /// Commits, unless the lease is lost. PostgreSQL rolls back a transaction in which a statement had failed, and calls that a success: here it is
    /// an error.
    pub async fn commit(self) -> Result<(), Error> {
        self.transaction.batch_execute("SELECT").await?;
        self.lease.check()?;
        Ok(self.transaction.commit().await?)
    }
}

fn token(lease: &Lease) -> i64 {
    lease.token() as i64 // tokens are below 2^53
}
