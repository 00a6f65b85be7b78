//! The fence of the Rust driver, with an older and a newer lease of one lock: see tests/drivers/suite, test_fences.

use fencelock::postgres::Fence;
use fencelock::{connect, Client, Error, Lease, Options};
use std::env::var;
use std::io::{Read, Write};
use std::time::Duration;

const ADD: &str = "UPDATE account SET balance = balance + 1 WHERE lock = 'job'";

/// An operator's BREAK, of which the holder hears at its next renewal.
fn break_lock(url: &str) {
    let address = url.trim_start_matches("fencelock://").split(',').next().unwrap();
    let mut node = std::net::TcpStream::connect(address).unwrap();
    node.write_all(b"BREAK job\r\n").unwrap();
    let mut answer = [0u8; 200];
    let n = node.read(&mut answer).unwrap();
    assert_ne!(answer[0], b'-', "{}", String::from_utf8_lossy(&answer[..n]));
}

async fn add(fence: &Fence, db: &mut tokio_postgres::Client) -> Result<(), Error> {
    let t = fence.transaction(db).await?;
    t.execute(ADD, &[]).await?;
    t.commit().await
}

/// Error::Stale, with no error of the database inside, which a framework would repeat.
fn stale<T>(result: Result<T, Error>) {
    match result {
        Err(e @ Error::Stale(_)) => assert!(std::error::Error::source(&e).is_none()),
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("it was admitted"),
    }
}

async fn job(locks: &Client) -> Lease {
    locks.acquire("job", &Options::new().ttl(Duration::from_secs(3600)).wait(Duration::from_secs(240))).await.unwrap()
}

#[tokio::main]
async fn main() {
    let (url, database) = (var("FENCELOCK_URL").unwrap(), var("POSTGRES_URL").unwrap());
    let (locks, other) = (connect(&url).unwrap(), connect(&url).unwrap());
    let (mut db, connection) = tokio_postgres::connect(&database, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);

    let older = job(&other).await; // of a client that does not know yet that it is over
    let old = Fence::claim(&db, &older).await.unwrap();
    add(&old, &mut db).await.unwrap();
    break_lock(&url);
    let newer = job(&locks).await;
    let fence = Fence::claim(&db, &newer).await.unwrap();
    stale(add(&old, &mut db).await);
    stale(Fence::claim(&db, &older).await);
    add(&fence, &mut db).await.unwrap();

    // A statement that failed: the commit would be a rollback that nobody is told of.
    let t = fence.transaction(&mut db).await.unwrap();
    t.execute("SELECT 1 / 0", &[]).await.unwrap_err();
    assert!(matches!(t.commit().await, Err(Error::Postgres(_))));

    // Dropped, or with a lease that is over, a transaction commits nothing.
    fence.transaction(&mut db).await.unwrap().execute(ADD, &[]).await.unwrap();
    let t = fence.transaction(&mut db).await.unwrap();
    t.execute(ADD, &[]).await.unwrap();
    newer.release().await.unwrap();
    assert!(matches!(t.commit().await, Err(Error::Released(_))));
    let balance: i32 = db.query_one("SELECT balance FROM account", &[]).await.unwrap().get(0);
    assert_eq!(balance, 2);
    other.close().await;
    locks.close().await;
}
