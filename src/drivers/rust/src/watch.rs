use crate::engine::Engine;
use crate::error::{of, text_of};
use crate::Error;
use fencelock_sys as sys;
use std::ffi::CStr;
use std::sync::Arc;

/// Something that happened to a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// granted, queued, released, expired, broken, left; resync: events were missed, so look again. Others may be added.
    pub kind: String,
    /// Empty for a gap that concerns every lock of the pattern.
    pub lock: String,
    /// Of the grant; 0: the event has none.
    pub token: u64,
    /// Of the lock, or of the wait.
    pub owner: String,
    /// The number of a wait; 0: the event has none.
    pub wait: u64,
    /// Of the cluster, in milliseconds.
    pub clock_ms: u64,
}

/// The events of locks. Dropped, it ends.
pub struct Watch {
    engine: Arc<Engine>,
    watch: *mut sys::fl_watch,
}
// SAFETY: it is used under the engine's mutex.
unsafe impl Send for Watch {}
unsafe impl Sync for Watch {}

impl Watch {
    pub(crate) fn open(engine: Arc<Engine>, pattern: &CStr) -> Result<Watch, Error> {
        // SAFETY: all zero is the default.
        let options: sys::fl_watch_options = unsafe { std::mem::zeroed() };
        let mut watch = std::ptr::null_mut();
        let (status, why) = engine.call(|c| unsafe {
            let status = sys::fl_watch_open(c, pattern.as_ptr(), &options, &mut watch);
            (status, if status == 0 { String::new() } else { text_of(sys::fl_client_error(c)) })
        })?;
        if status != 0 {
            return Err(of(status, why, ""));
        }
        Ok(Watch { engine, watch })
    }

    /// The next event; None: the client was closed. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let mut turned = std::pin::pin!(self.engine.turned.notified());
            turned.as_mut().enable();
            match self.poll()? {
                Polled::Said(e) => return Some(e),
                Polled::Skip => {}
                Polled::Nothing => turned.await,
            }
        }
    }

    fn poll(&self) -> Option<Polled> {
        let said = self.engine.call(|_| unsafe { sys::fl_watch_poll(self.watch).as_ref().map(|e| event_of(e)) }).ok()?;
        Some(match said {
            None => Polled::Nothing,
            Some(None) => Polled::Skip,
            Some(Some(e)) => Polled::Said(e),
        })
    }
}

enum Polled {
    Nothing,
    Skip,
    Said(Event),
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.engine.call(|_| unsafe { sys::fl_watch_close(self.watch) }).is_err() {
            unsafe { sys::fl_watch_close(self.watch) }; // the client was closed, so nobody else uses it
        }
    }
}

/// None: it tells a user nothing.
unsafe fn event_of(e: &sys::fl_event) -> Option<Event> {
    let kind = match e.kind {
        sys::FL_EVENT_INTERRUPTED => return None,
        sys::FL_EVENT_MISSED | sys::FL_EVENT_LISTENS => "resync".to_owned(),
        _ => text_of(e.word),
    };
    Some(Event { kind, lock: bytes(&e.name), token: e.token, owner: bytes(&e.owner), wait: e.wait, clock_ms: e.clock_ms })
}

unsafe fn bytes(b: &sys::fl_bytes) -> String {
    if b.len == 0 {
        return String::new();
    }
    String::from_utf8_lossy(std::slice::from_raw_parts(b.data.cast::<u8>(), b.len)).into_owned()
}
