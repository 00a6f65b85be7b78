use crate::engine::{guard, Ear, Engine};
use crate::error::of;
use crate::lease::Inner;
use crate::{Error, Lease, Watch};
use fencelock_sys as sys;
use std::collections::HashMap;
use std::ffi::CString;
use std::future::Future;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const BEYOND_MS: u64 = 10_000; // how long a request may look for a node that serves, beyond its wait
const STAND_AGAIN: Duration = Duration::from_millis(200);

/// How a lock is acquired: for 10 s that are renewed, alone, and without a wait, unless it says otherwise.
#[derive(Debug, Clone)]
pub struct Options {
    ttl: Duration,
    wait: Duration,
    shared: bool,
    permits: Option<u64>,
    also: Vec<String>,
    value: String,
}

impl Default for Options {
    fn default() -> Options {
        Options { ttl: Duration::from_secs(10), wait: Duration::ZERO, shared: false, permits: None, also: Vec::new(), value: String::new() }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// How long the lock outlives a process that dies: 10 ms to a day. It is renewed while the lease is held. Leases of one TTL share one renewal.
    pub fn ttl(mut self, ttl: Duration) -> Options {
        self.ttl = ttl;
        self
    }

    /// How long to wait in the queue while others hold the lock; a day at most.
    pub fn wait(mut self, wait: Duration) -> Options {
        self.wait = wait;
        self
    }

    /// Together with other readers. A reader's token guards no write: see docs/PROTOCOL.md.
    pub fn shared(mut self) -> Options {
        self.shared = true;
        self
    }

    /// As one of so many holders of a semaphore; 1 to 1,000,000. Every client of the lock gives the same number.
    pub fn permits(mut self, permits: u64) -> Options {
        self.permits = Some(permits);
        self
    }

    /// Further locks, all or none, under one token; 15 at most.
    pub fn also<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Options {
        self.also.extend(names.into_iter().map(Into::into));
        self
    }

    /// What others see of the lease, such as the name of this process; 1024 bytes at most.
    pub fn value(mut self, value: impl Into<String>) -> Options {
        self.value = value.into();
        self
    }
}

/// Files in PEM for a fencelocks:// URL. Without them the system's authorities are trusted.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Of the authorities.
    pub ca_file: Option<String>,
    /// The client's certificate, with `key_file`.
    pub cert_file: Option<String>,
    /// Its key.
    pub key_file: Option<String>,
    /// The name that the nodes' certificates have, if it is not that of the URL.
    pub server_name: Option<String>,
}

/// One for each process: all its leases of one TTL are one session at the service, and so one renewal. Clones are one client.
#[derive(Clone)]
pub struct Client {
    engine: Arc<Engine>,
    open: Arc<Mutex<HashMap<u64, Weak<Inner>>>>, // leases, by token
}

/// Reads the URL: fencelock://HOST:PORT,HOST:PORT, or fencelocks://USER:PASSWORD@HOST:PORT for TLS and a login. It connects to nobody yet; names of
/// hosts are resolved here, once.
pub fn connect(url: &str) -> Result<Client, Error> {
    Client::connect(url, None)
}

fn bytes(text: &str) -> sys::fl_bytes {
    sys::fl_bytes { data: text.as_ptr().cast(), len: text.len() }
}

fn milliseconds(d: Duration) -> u64 {
    u64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Client {
    /// As [`connect`], with files for TLS.
    pub fn connect(url: &str, tls: Option<&Tls>) -> Result<Client, Error> {
        if !url.starts_with("fencelock://") && !url.starts_with("fencelocks://") {
            return Err(Error::Argument("this is no URL of a cluster: write fencelock://HOST:PORT,HOST:PORT, or fencelocks:// with TLS".into()));
        }
        // SAFETY: all zero is the default of every struct of options.
        let mut options: sys::fl_client_options = unsafe { std::mem::zeroed() };
        let files = tls.map(files_of).transpose()?;
        let raw = files.as_ref().map(|f| {
            let p = |i: usize| f[i].as_ref().map_or(std::ptr::null(), |s| s.as_ptr());
            sys::fl_tls_options { ca_file: p(0), cert_file: p(1), key_file: p(2), server_name: p(3) }
        });
        if let Some(raw) = &raw {
            options.tls = raw;
        }
        Ok(Client { engine: Engine::open(url, &mut options)?, open: Arc::default() })
    }

    /// Takes the lock. Dropped, the future gives up its place in the queue. Whatever it returns but a lease, and when it is dropped, nothing stays
    /// held.
    pub async fn acquire(&self, name: &str, options: &Options) -> Result<Lease, Error> {
        let lost = CancellationToken::new();
        let ear = Ear::new(lost.clone());
        let mut take = self.start(name, options, &ear)?;
        let done = take.answered().await?;
        let Some(held) = done.lock.filter(|_| done.status == 0) else { return Err(of(done.status, done.error, name)) };
        let lease = Lease::new(self.engine.clone(), name, done.token, held, lost, ear);
        let mut open = guard(&self.open);
        open.retain(|_, l| l.strong_count() > 0);
        open.insert(done.token, lease.weak());
        drop(open);
        Ok(lease)
    }

    fn start(&self, name: &str, o: &Options, ear: &Ear) -> Result<crate::engine::Take, Error> {
        if o.permits == Some(0) {
            return Err(Error::Argument("permits is the number of holders at a time, 1 to 1000000, and not 0".into()));
        }
        let also: Vec<sys::fl_bytes> = o.also.iter().map(|n| bytes(n)).collect();
        // SAFETY: as above.
        let mut take: sys::fl_take = unsafe { std::mem::zeroed() };
        take.ttl_ms = milliseconds(o.ttl).max(1);
        take.wait_ms = milliseconds(o.wait).min(sys::FL_WAIT_MAX_MS);
        take.timeout_ms = BEYOND_MS;
        take.name = bytes(name);
        take.value = bytes(&o.value);
        take.mode = if o.shared { sys::FL_MODE_SHARED } else { sys::FL_MODE_EXCLUSIVE };
        take.permits = o.permits.unwrap_or(0);
        take.also = also.as_ptr();
        take.also_len = also.len();
        take.shares = true;
        self.engine.take(&mut take, ear)
    }

    /// Acquires the lock, runs the work, and releases the lock. When the lock is lost, the work is dropped where it awaits, and the error is
    /// Error::Lost. A failure of the release is no error: the work is done, and the lock is given back in the background.
    pub async fn with<T, E, W>(&self, name: &str, options: &Options, work: impl FnOnce(Lease) -> W) -> Result<T, E>
    where
        E: From<Error>,
        W: Future<Output = Result<T, E>>,
    {
        let lease = self.acquire(name, options).await?;
        let _ends = Ends(&lease);
        let result = until_lost(&lease, work(lease.clone())).await;
        let _ = lease.release().await;
        result.unwrap_or_else(|lost| Err(lost.into()))
    }

    /// Runs the work while this process leads: while it holds the lock. After a loss, which drops the work, it stands for election again. It ends
    /// when the work ends while it leads, with its result. Drop the future to resign.
    pub async fn elect<T, E, W>(&self, name: &str, options: &Options, mut work: impl FnMut(Lease) -> W) -> Result<T, E>
    where
        E: From<Error>,
        W: Future<Output = Result<T, E>>,
    {
        let options = options.clone().wait(Duration::from_millis(sys::FL_WAIT_MAX_MS));
        loop {
            match self.acquire(name, &options).await {
                Ok(lease) => {
                    let _ends = Ends(&lease);
                    let result = until_lost(&lease, work(lease.clone())).await;
                    let lost = matches!(lease.check(), Err(Error::Lost(_)));
                    let _ = lease.release().await;
                    match result {
                        Ok(result) if !lost => return result,
                        _ => {}
                    }
                }
                Err(Error::NotAcquired(_) | Error::Unavailable(_) | Error::Uncertain(_)) => tokio::time::sleep(STAND_AGAIN).await,
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Listens to the events of all locks whose names the pattern matches (*, ?, [a-z]). The first is a resync, and one comes after each gap.
    pub fn watch(&self, pattern: &str) -> Result<Watch, Error> {
        if pattern.is_empty() {
            return Err(Error::Argument("the pattern is empty: write * for all locks".into()));
        }
        let pattern = CString::new(pattern).map_err(|_| Error::Argument("the pattern has a zero byte".into()))?;
        Watch::open(self.engine.clone(), &pattern)
    }

    /// Releases all locks, and ends the connections and the thread. What waits gets Error::Closed.
    pub async fn close(&self) {
        self.engine.end_waits();
        let leases: Vec<Lease> = guard(&self.open).drain().filter_map(|(_, l)| Lease::of(&l)).collect();
        let releases: Vec<_> = leases.into_iter().map(|l| tokio::spawn(async move { l.release().await.is_ok() })).collect();
        for release in releases {
            let _ = release.await;
        }
        let engine = self.engine.clone();
        let _ = tokio::task::spawn_blocking(move || engine.close()).await; // it may wait for nodes
    }
}

/// The lock is given back when `with` or `elect` is dropped, also when the work has left clones of the lease behind.
struct Ends<'a>(&'a Lease);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// The work's result, or the loss, which drops the work.
async fn until_lost<T>(lease: &Lease, work: impl Future<Output = T>) -> Result<T, Error> {
    let loss = async {
        match lease.until_lost().await {
            Error::Released(_) => std::future::pending().await, // by the work itself
            lost => lost,
        }
    };
    tokio::select! {
        biased;
        lost = loss => Err(lost),
        result = work => Ok(result),
    }
}

fn files_of(tls: &Tls) -> Result<[Option<CString>; 4], Error> {
    let c = |text: &Option<String>| text.as_ref().map(|t| CString::new(t.as_str())).transpose();
    let all = || Ok([c(&tls.ca_file)?, c(&tls.cert_file)?, c(&tls.key_file)?, c(&tls.server_name)?]);
    all().map_err(|_: std::ffi::NulError| Error::Argument("a file name of TLS has a zero byte".into()))
}
