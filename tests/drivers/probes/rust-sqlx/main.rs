//! sqlx with the program of the driver's page: a stale write is Error::Stale, and sqlx repeats nothing. See tests/drivers/suite, test_frameworks.

include!("page.rs"); // the block of the page

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

const LONG: Duration = Duration::from_secs(3600);

/// A node of its own: its address.
fn node(data: &std::path::Path) -> (std::process::Child, String) {
    let peer = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let words = ["--listen", "127.0.0.1:0", "--peer", &peer.to_string(), "--data"];
    let mut child = Command::new(std::env::var("FENCELOCKD").unwrap()).args(words).arg(data).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.find_map(|l| l.unwrap().split_once("listening on ").map(|(_, a)| a.trim().to_owned())).unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    (child, address)
}

fn break_lock(address: &str) {
    let mut node = std::net::TcpStream::connect(address).unwrap();
    node.write_all(b"BREAK account/42\r\n").unwrap();
    let mut answer = [0u8; 200];
    let n = node.read(&mut answer).unwrap();
    assert_ne!(answer[0], b'-', "{}", String::from_utf8_lossy(&answer[..n]));
}

async fn balance(db: &sqlx::PgPool) -> i32 {
    sqlx::query_scalar("SELECT balance FROM account WHERE lock = 'account/42'").fetch_one(db).await.unwrap()
}

#[tokio::main]
async fn main() {
    let data = std::env::temp_dir().join(format!("fencelock-sqlx-{}", std::process::id()));
    let (mut child, address) = node(&data);
    let url = format!("fencelock://{address}");
    let lent = Arc::new(AtomicUsize::new(0));
    let counted = lent.clone();
    let options = sqlx::postgres::PgPoolOptions::new().max_connections(1).before_acquire(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(true) })
    });
    let db = options.connect(&std::env::var("POSTGRES_URL").unwrap()).await.unwrap();
    for text in ["CREATE TABLE account (lock text PRIMARY KEY, balance int)", "INSERT INTO account VALUES ('account/42', 0)", "SELECT fence.protect('account', 'lock')"] {
        sqlx::query(text).execute(&db).await.unwrap();
    }

    add(&url, &db, 10).await.unwrap();
    assert_eq!(balance(&db).await, 10);

    let (locks, other) = (connect(&url).unwrap(), connect(&url).unwrap());
    let long = Options::new().ttl(LONG).wait(LONG);
    let older = other.acquire("account/42", &long).await.unwrap(); // of a client that does not know yet that it is over
    claim(&db, &older).await.unwrap();
    break_lock(&address);
    let newer = locks.acquire("account/42", &long).await.unwrap();
    claim(&db, &newer).await.unwrap();
    let before = lent.load(Ordering::SeqCst);
    // A statement that is repeated in a transaction that has failed gets another error, and outside of one another connection.
    assert!(matches!(write(&db, &older, 1).await, Err(Failed::Lock(Error::Stale(_)))));
    assert!(matches!(claim(&db, &older).await, Err(Failed::Lock(Error::Stale(_)))));
    assert_eq!(lent.load(Ordering::SeqCst) - before, 2);
    write(&db, &newer, 1).await.unwrap();
    assert_eq!(balance(&db).await, 11);
    newer.release().await.unwrap();
    assert!(matches!(write(&db, &newer, 1).await, Err(Failed::Lock(Error::Released(_)))));
    assert!(matches!(sqlx::query("SELECT 1 / 0").execute(&db).await.map_err(Failed::from), Err(Failed::Database(_))));
    assert_eq!(balance(&db).await, 11);
    locks.close().await;
    other.close().await;
    let _ = child.kill();
    let _ = child.wait();
    let _ = std::fs::remove_dir_all(&data);
}
