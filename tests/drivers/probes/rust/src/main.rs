//! The probe of the Rust driver: see tests/drivers/suite. It takes commands from standard input and prints what it believes.

use fencelock::postgres::Fence;
use fencelock::{Client, Error, Lease, Options, State, Tls};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::sync::CancellationToken;

#[derive(Clone)]
struct Probe {
    locks: Client,
    leases: Arc<Mutex<HashMap<String, Lease>>>,
    cancels: Arc<Mutex<HashMap<String, CancellationToken>>>,
}

fn boot_ms() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut t) };
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
}

fn say(id: &str, event: &str, more: Value) {
    let mut line = json!({"at": boot_ms(), "id": id, "event": event});
    line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    println!("{line}"); // a line at a time: standard output is flushed at its end
}

/// Names an error for the suite.
fn word_of(e: &Error) -> String {
    match e {
        Error::NotAcquired(_) => "notacquired".into(),
        Error::Lost(_) => "lost".into(),
        Error::Released(_) => "released".into(),
        Error::Uncertain(_) => "uncertain".into(),
        Error::Unavailable(_) => "unavailable".into(),
        Error::Closed => "closed".into(),
        Error::Argument(_) => "argument".into(),
        Error::Refused { word, .. } => word.clone(),
        other => other.to_string(),
    }
}

fn word(result: Result<(), Error>) -> Value {
    result.map_or_else(|e| word_of(&e).into(), |()| Value::Null)
}

fn options(words: &[String]) -> Options {
    let mut o = Options::new();
    for w in words {
        let (key, value) = w.split_once('=').unwrap();
        let n = || value.parse::<u64>().unwrap();
        o = match key {
            "ttl" => o.ttl(Duration::from_millis(n())),
            "wait" => o.wait(Duration::from_millis(n())),
            "shared" => o.shared(),
            "permits" => o.permits(n()),
            _ => o.also(value.split(',')),
        };
    }
    o
}

/// Notes the last moment at which the lease was believed in, every few milliseconds, and tells of the loss.
async fn believe(id: String, lease: Lease) {
    let mut believed = 0.0; // it may have been stopped before its first look
    loop {
        let at = boot_ms();
        if lease.check().is_err() {
            break;
        }
        believed = at;
        let _ = tokio::time::timeout(Duration::from_millis(5), lease.until_lost()).await;
    }
    let noticed = boot_ms();
    let why = word_of(&lease.until_lost().await);
    say(&id, "ended", json!({"why": why, "believed": believed, "noticed": noticed}));
}

impl Probe {
    fn begin(&self, id: &str) -> CancellationToken {
        let token = CancellationToken::new();
        self.cancels.lock().unwrap().insert(id.into(), token.clone());
        token
    }

    async fn acquire(self, id: String, name: String, more: Vec<String>) {
        let cancelled = self.begin(&id);
        let o = options(&more);
        let got = tokio::select! {
            got = self.locks.acquire(&name, &o) => got,
            () = cancelled.cancelled() => Err(Error::Uncertain("cancelled".into())),
        };
        match got {
            Err(e) => say(&id, "failed", json!({"error": word_of(&e), "text": e.to_string()})),
            Ok(lease) => {
                self.leases.lock().unwrap().insert(id.clone(), lease.clone());
                say(&id, "acquired", json!({"token": lease.token()}));
                believe(id, lease).await;
            }
        }
    }

    async fn elect(self, id: String, name: String, more: Vec<String>) {
        let cancelled = self.begin(&id);
        let o = options(&more);
        let leads = |lease: Lease| {
            say(&id, "leads", json!({"token": lease.token()}));
            tokio::spawn(believe(id.clone(), lease));
            std::future::pending::<Result<(), Error>>()
        };
        let error = tokio::select! {
            ended = self.locks.elect(&name, &o, leads) => word(ended),
            () = cancelled.cancelled() => Value::Null,
        };
        say(&id, "resigned", json!({"error": error}));
    }

    async fn watch(self, id: String, pattern: String) {
        let cancelled = self.begin(&id);
        let mut watch = self.locks.watch(&pattern).unwrap();
        loop {
            let e = tokio::select! {
                e = watch.next() => e,
                () = cancelled.cancelled() => None,
            };
            let Some(e) = e else { break };
            say(&id, "event", json!({"kind": e.kind, "lock": e.lock, "token": e.token}));
        }
        say(&id, "unwatched", json!({}));
    }

    async fn many(self, id: String, prefix: String, n: usize, more: Vec<String>) {
        let gate = Arc::new(tokio::sync::Semaphore::new(32));
        let mut all = Vec::new();
        for i in 0..n {
            let (locks, name, o, turn) = (self.locks.clone(), format!("{prefix}-{i}"), options(&more), gate.clone().acquire_owned().await.unwrap());
            all.push(tokio::spawn(async move {
                let lease = locks.acquire(&name, &o).await;
                drop(turn);
                lease
            }));
        }
        let mut held = Vec::new();
        for one in all {
            held.extend(one.await.unwrap().ok());
        }
        say(&id, "many", json!({"acquired": held.len()}));
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            say(&id, "count", json!({"lost": held.iter().filter(|l| l.lost().is_cancelled()).count()}));
        }
    }

    async fn work(self, id: String, name: String, url: String, n: usize, more: Vec<String>) {
        let (mut db, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..n {
            if db.is_closed() {
                let (again, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
                tokio::spawn(connection);
                db = again;
            }
            let mut committing = false;
            let (db, at) = (&mut db, &mut committing);
            let name = &name;
            let added: Result<(), Error> = self
                .locks
                .with(name, &options(&more), |lease| async move {
                    let fence = Fence::claim(db, &lease).await?;
                    let balance: i32 = db.query_one("SELECT balance FROM account WHERE lock = $1", &[name]).await?.get(0);
                    *at = true;
                    let t = fence.transaction(db).await?;
                    t.execute("UPDATE account SET balance = $1 WHERE lock = $2", &[&(balance + 1), name]).await?;
                    t.commit().await
                })
                .await;
            match added {
                Ok(()) => say(&id, "added", json!({})),
                Err(Error::Stale(_)) => say(&id, "stale", json!({})),
                Err(e) => say(&id, if committing { "perhaps" } else { "not added" }, json!({"text": e.to_string()})),
            }
        }
        say(&id, "worked", json!({}));
    }

    async fn release(self, id: String) {
        let lease = self.leases.lock().unwrap()[&id].clone();
        let began = boot_ms();
        let error = word(lease.release().await);
        say(&id, "released", json!({"error": error, "took": boot_ms() - began}));
    }

    fn state(&self, id: &str) {
        let lease = self.leases.lock().unwrap()[id].clone();
        let state = match lease.state() {
            State::Safe => "safe",
            State::Jeopardy => "jeopardy",
            State::Lost => "lost",
        };
        say(id, "state", json!({"state": state, "remaining": lease.remaining().as_millis() as u64, "error": word(lease.check())}));
    }

    fn run(&self, words: Vec<String>) {
        let (id, probe) = (words[1].clone(), self.clone());
        let word = |i: usize| words[i].clone();
        match words[0].as_str() {
            "acquire" => drop(tokio::spawn(probe.acquire(id, word(2), words[3..].to_vec()))),
            "elect" => drop(tokio::spawn(probe.elect(id, word(2), words[3..].to_vec()))),
            "watch" => drop(tokio::spawn(probe.watch(id, word(2)))),
            "many" => drop(tokio::spawn(probe.many(id, word(2), word(3).parse().unwrap(), words[4..].to_vec()))),
            "work" => drop(tokio::spawn(probe.work(id, word(2), word(3), word(4).parse().unwrap(), words[5..].to_vec()))),
            "cancel" => self.cancels.lock().unwrap()[&id].cancel(),
            "release" => drop(tokio::spawn(probe.release(id))),
            "state" => self.state(&id),
            "threads" => {
                let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
                let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
                say(&id, "threads", json!({"n": tasks + threads}));
            }
            "close" => drop(tokio::spawn(async move {
                probe.locks.close().await;
                say(&id, "closed", json!({"error": null}));
            })),
            _ => unsafe {
                libc::kill(libc::getpid(), libc::SIGKILL);
            },
        }
    }
}

#[tokio::main]
async fn main() {
    std::panic::set_hook(Box::new(|p| say("", "died", json!({"text": p.to_string()}))));
    let tls = std::env::var("PROBE_CA").ok().map(|ca| Tls { ca_file: Some(ca), ..Tls::default() });
    let locks = match Client::connect(&std::env::args().nth(1).unwrap(), tls.as_ref()) {
        Ok(locks) => locks,
        Err(e) => {
            say("", "failed", json!({"error": word_of(&e), "text": e.to_string()}));
            std::process::exit(2);
        }
    };
    let probe = Probe { locks, leases: Arc::default(), cancels: Arc::default() };
    say("", "ready", json!({}));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        probe.run(line.split(' ').map(str::to_owned).collect());
    }
    std::process::exit(0);
}
