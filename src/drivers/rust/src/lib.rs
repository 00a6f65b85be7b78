//! Locks of a fencelock cluster: with a lease that is renewed, work that ends when the lock is lost, and a fencing token that a storage
//! checks.
//!
//! ```no_run
//! # async fn write(token: u64) -> Result<(), fencelock::Error> { Ok(()) }
//! # async fn run() -> Result<(), fencelock::Error> {
//! let locks = fencelock::connect("fencelock://10.0.0.1:7401,10.0.0.2:7401,10.0.0.3:7401")?;
//! let options = fencelock::Options::new().wait(std::time::Duration::from_secs(30));
//! locks.with("account/42", &options, |lease| async move { write(lease.token()).await }).await?;
//! # Ok(()) }
//! ```
//!
//! It stands on libfencelock, whose engine runs on a thread of its own: a runtime that is blocked loses no lock.
#![warn(missing_docs)]

mod client;
mod engine;
mod error;
mod lease;
mod watch;

#[cfg(feature = "postgres")]
pub mod postgres;

pub use client::{connect, Client, Options, Tls};
pub use error::Error;
pub use lease::{Lease, State};
pub use watch::{Event, Watch};
