//! The library behind its thread. The library calls back only inside fl_process(), which runs under one mutex with everything that ends a
//! call or the client: so nothing ends a call whose callback is under way, or has been.

use crate::error::{of, text_of};
use crate::Error;
use fencelock_sys as sys;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::sync::{oneshot, Notify};
use tokio_util::sync::CancellationToken;

pub(crate) const RELEASE_MS: u64 = 5000;
const LOOK_MS: c_int = 1000; // a client that was dropped ends its thread by then

pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock of the library. Dropped, it is released in the background.
pub(crate) struct Held(*mut sys::fl_lock);
// SAFETY: any thread may use a lock; &mut and ownership see to it that nobody uses it while it is freed.
unsafe impl Send for Held {}
unsafe impl Sync for Held {}

impl Held {
    pub(crate) fn state(&self) -> c_int {
        unsafe { sys::fl_lock_state(self.0) }
    }

    pub(crate) fn remaining_ms(&self) -> u64 {
        unsafe { sys::fl_lock_remaining_ms(self.0) }
    }

    /// The answer to the release. The library goes on with it whatever becomes of the receiver.
    pub(crate) fn release(self, engine: &Engine) -> oneshot::Receiver<Done> {
        let (number, done) = expect(engine.id);
        let lock = std::mem::ManuallyDrop::new(self).0;
        let status = unsafe { sys::fl_lock_release_start(lock, RELEASE_MS, Some(on_done), arg(number)) };
        if status != 0 {
            answer(number, Done { status, error: String::new(), lock: None, token: 0 });
        }
        done
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        unsafe { let _ = sys::fl_lock_release_start(self.0, 0, None, std::ptr::null_mut()); }
    }
}

/// How a call ended.
pub(crate) struct Done {
    pub(crate) status: c_int,
    pub(crate) error: String,
    pub(crate) lock: Option<Held>,
    pub(crate) token: u64,
}

struct Waiting {
    engine: usize,
    call: sys::fl_call, // 0: it ends by itself
    tell: oneshot::Sender<Done>,
}

// What the library's callbacks get is a number, so one that is not expected any more finds nothing.
static WAITING: OnceLock<Mutex<HashMap<usize, Waiting>>> = OnceLock::new();
static LEASES: OnceLock<Mutex<HashMap<usize, CancellationToken>>> = OnceLock::new();
static NUMBERS: AtomicUsize = AtomicUsize::new(1);

fn waiting() -> MutexGuard<'static, HashMap<usize, Waiting>> {
    guard(WAITING.get_or_init(Mutex::default))
}

fn leases() -> MutexGuard<'static, HashMap<usize, CancellationToken>> {
    guard(LEASES.get_or_init(Mutex::default))
}

fn next_number() -> usize {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

fn arg(number: usize) -> *mut c_void {
    number as *mut c_void
}

fn expect(engine: usize) -> (usize, oneshot::Receiver<Done>) {
    let (tell, done) = oneshot::channel();
    let number = next_number();
    waiting().insert(number, Waiting { engine, call: 0, tell });
    (number, done)
}

/// Whoever waits no more drops a lock that has come, and so releases it.
fn answer(number: usize, done: Done) {
    let found = waiting().remove(&number);
    if let Some(w) = found {
        let _ = w.tell.send(done);
    }
}

/// Under the engine's mutex. From then on the call holds nothing and waits for nothing, once the library has settled it.
fn give_up(c: *mut sys::fl_client, number: usize) {
    let found = waiting().remove(&number);
    if let Some(w) = found.filter(|w| w.call != 0) {
        unsafe { sys::fl_call_cancel(c, w.call) };
    }
}

unsafe extern "C" fn on_done(number: *mut c_void, result: *const sys::fl_result) {
    let r = &*result;
    let lock = if r.lock.is_null() { None } else { Some(Held(r.lock)) };
    answer(number as usize, Done { status: r.status, error: text_of(r.error), lock, token: r.token });
}

unsafe extern "C" fn on_change(number: *mut c_void, _lock: *mut sys::fl_lock, state: c_int) {
    if state == sys::FL_HOLD_LOST {
        let found = leases().remove(&(number as usize));
        if let Some(lost) = found {
            lost.cancel();
        }
    }
}

/// The place of a lease among those that hear of a loss.
pub(crate) struct Ear(usize);

impl Ear {
    pub(crate) fn new(lost: CancellationToken) -> Ear {
        let number = next_number();
        leases().insert(number, lost);
        Ear(number)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        leases().remove(&self.0);
    }
}

struct Handle(*mut sys::fl_client);
// SAFETY: any thread may call with it, and all calls are under the mutex.
unsafe impl Send for Handle {}

pub(crate) struct Engine {
    id: usize,
    handle: Mutex<Option<Handle>>, // None: closed
    closing: AtomicBool,
    pub(crate) turned: Notify,     // fl_process() has run, or the client was closed
}

impl Engine {
    /// Opens the client, and starts the thread that drives it.
    pub(crate) fn open(url: &str, options: &mut sys::fl_client_options) -> Result<Arc<Engine>, Error> {
        let nodes = std::ffi::CString::new(url).map_err(|_| Error::Argument("the URL has a zero byte".into()))?;
        options.own_loop = true;
        let mut client = std::ptr::null_mut();
        let status = unsafe { sys::fl_open(nodes.as_ptr(), options, &mut client) };
        if status != 0 {
            return Err(of(status, unsafe { text_of(sys::fl_client_error(std::ptr::null())) }, ""));
        }
        let fd = unsafe { sys::fl_fd(client) };
        let engine = Arc::new(Engine { id: next_number(), handle: Mutex::new(Some(Handle(client))), closing: AtomicBool::new(false), turned: Notify::new() });
        let weak = Arc::downgrade(&engine);
        let started = std::thread::Builder::new().name("fencelock".into()).spawn(move || drive(fd, &weak));
        started.map_err(|e| Error::Refused { word: "ESYSTEM".into(), message: format!("no thread can be started: {e}") })?;
        Ok(engine)
    }

    /// Calls with the handle, while nothing is called back.
    pub(crate) fn call<T>(&self, f: impl FnOnce(*mut sys::fl_client) -> T) -> Result<T, Error> {
        guard(&self.handle).as_ref().map(|h| f(h.0)).ok_or(Error::Closed)
    }

    /// Begins to take a lock.
    pub(crate) fn take(self: &Arc<Self>, take: &mut sys::fl_take, ear: &Ear) -> Result<Take, Error> {
        take.on_change = Some(on_change);
        take.arg = arg(ear.0);
        let (number, done) = expect(self.id);
        let began = self.call(|c| unsafe {
            let mut call = 0;
            if self.closing.load(Ordering::Acquire) {
                return None;
            }
            let status = sys::fl_lock_take_start(c, std::ptr::null(), take, Some(on_done), arg(number), &mut call);
            if let Some(w) = waiting().get_mut(&number) {
                w.call = call;
            }
            Some((status, if status == 0 { String::new() } else { text_of(sys::fl_client_error(c)) }))
        });
        let failed = match began.and_then(|b| b.ok_or(Error::Closed)) {
            Ok((0, _)) => return Ok(Take { engine: self.clone(), number, done }),
            Ok((status, why)) => of(status, why, ""),
            Err(e) => e,
        };
        waiting().remove(&number);
        Err(failed)
    }

    /// Ends the waits for locks, and begins no more: what is released from now on is not granted to them.
    pub(crate) fn end_waits(&self) {
        let _ = self.call(|c| {
            self.closing.store(true, Ordering::Release);
            let takes: Vec<usize> = waiting().iter().filter(|(_, w)| w.engine == self.id && w.call != 0).map(|(n, _)| *n).collect();
            takes.into_iter().for_each(|n| give_up(c, n));
        });
    }

    /// Ends the connections; what still waits gets Error::Closed.
    pub(crate) fn close(&self) {
        let mut handle = guard(&self.handle);
        if let Some(h) = handle.take() {
            unsafe { sys::fl_close(h.0) };
        }
        drop(handle);
        waiting().retain(|_, w| w.engine != self.id);
        self.turned.notify_waiters();
    }
}

impl Drop for Engine {
    /// fl_close() may wait for nodes, and a drop must not.
    fn drop(&mut self) {
        if let Some(h) = guard(&self.handle).take() {
            let end = move || {
                let h = h;
                unsafe { sys::fl_close(h.0) }
            };
            let _ = std::thread::Builder::new().spawn(end);
        }
        waiting().retain(|_, w| w.engine != self.id);
    }
}

fn drive(fd: c_int, engine: &Weak<Engine>) {
    loop {
        let mut p = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        unsafe { libc::poll(&mut p, 1, LOOK_MS) };
        let Some(engine) = engine.upgrade() else { return };
        if engine.call(|c| unsafe { sys::fl_process(c) }).is_err() {
            return;
        }
        engine.turned.notify_waiters();
    }
}

/// A request for a lock. Dropped before its answer, it is given up, and nothing stays held.
pub(crate) struct Take {
    engine: Arc<Engine>,
    number: usize,
    done: oneshot::Receiver<Done>,
}

impl Take {
    pub(crate) async fn answered(&mut self) -> Result<Done, Error> {
        (&mut self.done).await.map_err(|_| Error::Closed)
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        let _ = self.engine.call(|c| give_up(c, self.number));
    }
}
