//! The driver, with a node of its own: the program FENCELOCKD.

use fencelock::{connect, Client, Error, Options, State, Tls};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(3600);

struct Node {
    child: Child,
    data: std::path::PathBuf,
    url: String,
}

impl Node {
    fn start() -> Node {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let data = std::env::temp_dir().join(format!("fencelock-rust-{}-{}", std::process::id(), free.port()));
        let program = std::env::var("FENCELOCKD").unwrap_or_else(|_| "fencelockd".into());
        let mut child = Command::new(program)
            .args(["--listen", "127.0.0.1:0", "--peer", &free.to_string(), "--data"])
            .arg(&data)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|l| l.unwrap().split_once("listening on ").map(|(_, a)| a.trim().to_owned())).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Node { child, data, url: format!("fencelock://{address}") }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// For all waits; less for drivers that are broken on purpose.
fn patience() -> Duration {
    let asked = std::env::var("DRIVER_PATIENCE_S").ok().and_then(|s| s.parse().ok());
    Duration::from_secs_f64(asked.unwrap_or(240.0))
}

async fn in_time<T>(work: impl std::future::Future<Output = T>) -> T {
    tokio::time::timeout(patience(), work).await.expect("it does not come about")
}

fn long() -> Options {
    Options::new().ttl(LONG).wait(patience())
}

async fn free(locks: &Client, name: &str) {
    locks.acquire(name, &long()).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease() {
    let node = Node::start();
    let locks = connect(&node.url).unwrap();
    let lease = locks.acquire("lock", &Options::new().value("me")).await.unwrap();
    lease.check().unwrap();
    assert!(lease.token() >= 1 && lease.name() == "lock" && lease.state() == State::Safe && lease.remaining() > Duration::ZERO);
    assert!(matches!(locks.acquire("lock", &Options::new()).await, Err(Error::NotAcquired(name)) if name == "lock"));
    lease.release().await.unwrap();
    lease.release().await.unwrap();
    assert!(matches!(lease.check(), Err(Error::Released(_))) && lease.remaining() == Duration::ZERO && lease.lost().is_cancelled());
    free(&locks, "lock").await;

    // with: the work's error is the result, and the lock is free after it, whatever becomes of the work.
    let ran: Result<(), Wrapped> = locks
        .with("lock", &long(), |l| async move {
            l.check()?;
            Err(Wrapped("mine".into()))
        })
        .await;
    assert_eq!(ran.unwrap_err().0, "mine");
    free(&locks, "lock").await;
    let (task, mine) = (locks.clone(), Arc::new(tokio::sync::Notify::new()));
    let begun = mine.clone();
    let kept = Arc::new(Mutex::new(None::<fencelock::Lease>));
    let clone = kept.clone();
    let work = tokio::spawn(async move {
        let left = &kept;
        let work = |lease| async move {
            *left.lock().unwrap() = Some(lease);
            begun.notify_one();
            std::future::pending::<Result<(), Error>>().await
        };
        task.with("lock", &long(), work).await
    });
    mine.notified().await;
    work.abort(); // the lock is released, though a clone of the lease is left
    let _ = work.await;
    assert!(matches!(clone.lock().unwrap().as_ref().unwrap().check(), Err(Error::Released(_))));
    free(&locks, "lock").await;

    // A lease that is dropped is released in the background; a wait that is dropped gives up its place.
    let held = locks.acquire("lock", &long()).await.unwrap();
    let (short, wait) = (Duration::from_millis(50), long());
    assert!(tokio::time::timeout(short, locks.acquire("lock", &wait)).await.is_err());
    let other = connect(&node.url).unwrap();
    assert!(tokio::time::timeout(short, other.acquire("lock", &wait)).await.is_err());
    drop(held);
    free(&other, "lock").await;
    free(&locks, "lock").await;
}

#[derive(Debug)]
struct Wrapped(String);

impl From<Error> for Wrapped {
    fn from(e: Error) -> Wrapped {
        Wrapped(e.to_string())
    }
}

/// Another client makes the service forget the lock, and the holder hears of it at its next renewal.
fn break_lock(node: &Node, name: &str) {
    use std::io::{Read, Write};
    let mut s = std::net::TcpStream::connect(node.url.trim_start_matches("fencelock://")).unwrap();
    s.write_all(format!("BREAK {name}\r\n").as_bytes()).unwrap();
    let mut answer = [0u8; 200];
    let n = s.read(&mut answer).unwrap();
    assert_ne!(answer[0], b'-', "{}", String::from_utf8_lossy(&answer[..n]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_drops_the_work() {
    let node = Node::start();
    let locks = connect(&node.url).unwrap();
    let options = Options::new().ttl(Duration::from_secs(3)).wait(patience());
    let work = |lease: fencelock::Lease| {
        break_lock(&node, lease.name());
        std::future::pending()
    };
    let lost: Result<(), Error> = in_time(locks.with("lock", &options, work)).await;
    assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");

    // An election after a loss, and its end.
    let terms = Mutex::new(Vec::new());
    let leads = |lease: fencelock::Lease| {
        terms.lock().unwrap().push(lease.token());
        let first = terms.lock().unwrap().len() == 1;
        if first {
            break_lock(&node, lease.name());
        }
        async move {
            match first {
                true => std::future::pending().await,
                false => Ok(lease.token()),
            }
        }
    };
    let result: Result<u64, Error> = in_time(locks.elect("boss", &options, leads)).await;
    let terms = terms.into_inner().unwrap();
    assert!(terms.len() == 2 && terms[1] > terms[0] && result.unwrap() == terms[1]);
    free(&locks, "boss").await;
}

#[tokio::test]
async fn a_client_that_is_closed() {
    let node = Node::start();
    let locks = connect(&node.url).unwrap();
    let lease = locks.acquire("lock", &long()).await.unwrap();
    let (again, options) = (locks.clone(), long());
    let wait = tokio::spawn(async move { again.acquire("lock", &options).await.err() });
    let mut watch = locks.watch("lock").unwrap();
    assert_eq!(watch.next().await.unwrap().kind, "resync");
    locks.close().await;
    assert!(matches!(wait.await.unwrap(), Some(Error::Closed)));
    assert!(matches!(lease.check(), Err(Error::Released(_))) && lease.lost().is_cancelled());
    assert!(matches!(locks.acquire("lock", &long()).await, Err(Error::Closed)));
    while watch.next().await.is_some() {}
    locks.close().await;
    free(&connect(&node.url).unwrap(), "lock").await;
}

#[tokio::test]
async fn wrong_arguments() {
    for url in ["", "redis://a:1", "fencelock://", "fencelock://a:0", "fencelock://a:65536", "fencelock://u@127.0.0.1:1", "fencelock://127.0.0.1:1\0"] {
        assert!(matches!(connect(url).err(), Some(Error::Argument(_))), "{url}");
    }
    let missing = Tls { ca_file: Some("/nonexistent/ca".into()), ..Tls::default() };
    assert!(matches!(Client::connect("fencelocks://127.0.0.1:1", Some(&missing)).err(), Some(Error::Argument(why)) if why.contains("nonexistent")));
    let locks = connect("fencelock://127.0.0.1:1").unwrap();
    for (name, o) in [("", Options::new()), ("n", Options::new().permits(0)), ("n", Options::new().permits(1_000_001)), ("n", Options::new().ttl(Duration::from_millis(9))),
        ("n", Options::new().value("v".repeat(1025))), ("n", Options::new().also((0..16).map(|i| i.to_string()))), ("n", Options::new().shared().permits(2))] {
        assert!(matches!(locks.acquire(name, &o).await.err(), Some(Error::Argument(_))), "{name:?} {o:?}");
    }
    assert!(matches!(locks.watch("").err(), Some(Error::Argument(_))));
}

fn cpu() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// By itself: the CPU time is that of the process.
#[tokio::test(flavor = "multi_thread")]
#[ignore]
async fn a_thousand_leases_cost_less_than_a_hundredth_of_a_core() {
    let node = Node::start();
    let locks = connect(&node.url).unwrap();
    let taken = (0..1000).map(|i| {
        let locks = locks.clone();
        tokio::spawn(async move { locks.acquire(&format!("idle-{i}"), &long()).await.unwrap() })
    });
    let mut held = Vec::new();
    for one in taken.collect::<Vec<_>>() {
        held.push(one.await.unwrap());
    }
    loop {
        let (used, began) = (cpu(), Instant::now());
        tokio::time::sleep(Duration::from_secs(2)).await;
        if (cpu() - used) * 100 < began.elapsed() {
            break;
        }
    }
    assert!(held.iter().all(|l| l.state() == State::Safe));
    locks.close().await;
}
