use crate::engine::{guard, Ear, Engine, Held};
use crate::{error, Error};
use fencelock_sys as sys;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What the holder of a lease may believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The last renewal succeeded in time.
    Safe,
    /// No renewal has succeeded for half of the TTL, or one has failed. Begin nothing that takes long.
    Jeopardy,
    /// Final: stop.
    Lost,
}

/// A lock that is held, and renewed until it is released or lost. The owner is the lease: any task may use it, and its clones are one lease.
/// When the last of them is dropped, the lock is released in the background; [`Lease::release`] waits for that.
#[derive(Clone)]
pub struct Lease(Arc<Inner>);

pub(crate) struct Inner {
    name: String,
    token: u64,
    engine: Arc<Engine>,
    held: Mutex<Option<Held>>,
    released: AtomicBool,
    lost: CancellationToken,
    _ear: Ear,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("name", &self.name()).field("token", &self.token()).field("state", &self.state()).finish()
    }
}

impl Lease {
    pub(crate) fn new(engine: Arc<Engine>, name: &str, token: u64, held: Held, lost: CancellationToken, ear: Ear) -> Lease {
        let inner = Inner { name: name.to_owned(), token, engine, held: Mutex::new(Some(held)), released: AtomicBool::new(false), lost, _ear: ear };
        Lease(Arc::new(inner))
    }

    pub(crate) fn weak(&self) -> std::sync::Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn of(inner: &std::sync::Weak<Inner>) -> Option<Lease> {
        inner.upgrade().map(Lease)
    }

    /// The name of the lock, the first one when there are several.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Every write at the storage carries it. It is larger than the tokens of all earlier holders.
    pub fn token(&self) -> u64 {
        self.0.token
    }

    /// Cancelled when the lease is lost or released, before another client can hold the lock, unless this process stands still: that is what the
    /// token is for.
    pub fn lost(&self) -> CancellationToken {
        self.0.lost.clone()
    }

    /// Ends when the lease is lost or released, with the reason.
    pub async fn until_lost(&self) -> Error {
        self.0.lost.cancelled().await;
        self.over()
    }

    fn over(&self) -> Error {
        if self.0.released.load(Ordering::Acquire) {
            return Error::Released(self.name().to_owned());
        }
        Error::Lost(self.name().to_owned())
    }

    /// An error unless the lock is held at this moment. It looks at the clock, so it is right also in the first moment after the process stood
    /// still.
    pub fn check(&self) -> Result<(), Error> {
        match self.state() {
            State::Lost => Err(self.over()),
            _ => Ok(()),
        }
    }

    /// What may be believed now.
    pub fn state(&self) -> State {
        let state = guard(&self.0.held).as_ref().map_or(sys::FL_HOLD_LOST, Held::state);
        match state {
            _ if self.0.lost.is_cancelled() => State::Lost,
            sys::FL_HOLD_SAFE => State::Safe,
            sys::FL_HOLD_JEOPARDY => State::Jeopardy,
            _ => {
                self.0.lost.cancel();
                State::Lost
            }
        }
    }

    /// How long the lease may be believed in if no further renewal succeeds. Zero: it is over.
    pub fn remaining(&self) -> Duration {
        if self.0.lost.is_cancelled() {
            return Duration::ZERO;
        }
        Duration::from_millis(guard(&self.0.held).as_ref().map_or(0, Held::remaining_ms))
    }

    /// Gives the lock back in the background, whatever clones there are.
    pub(crate) fn give_back(&self) {
        let is_held = self.check().is_ok();
        if let Some(held) = guard(&self.0.held).take() {
            self.0.released.store(is_held, Ordering::Release);
            self.0.lost.cancel();
            drop(held);
        }
    }

    /// Gives the lock back, and waits five seconds for the answer at most. A release without an answer goes on in the background, also when this
    /// future is dropped. Error::Lost says that the lease had ended before: no reason to do the work again.
    pub async fn release(&self) -> Result<(), Error> {
        let before = self.check().err();
        let held = guard(&self.0.held).take();
        let Some(held) = held else {
            return match before {
                Some(e @ Error::Lost(_)) => Err(e),
                _ => Ok(()),
            };
        };
        if before.is_none() {
            self.0.released.store(true, Ordering::Release);
            self.0.lost.cancel();
        }
        let answer = held.release(&self.0.engine).await;
        if let Some(e) = before {
            return Err(e);
        }
        match answer {
            Ok(done) if done.status == 0 => Ok(()),
            Ok(done) if done.status == sys::FL_ENOTHELD => Err(Error::Lost(self.name().to_owned())),
            Ok(done) => Err(error::of(done.status, done.error, self.name())),
            Err(_) => Err(Error::Closed),
        }
    }
}
