use fencelock_sys as sys;
use std::ffi::{c_char, c_int, CStr};
use std::fmt;

/// What can go wrong, by what a program does about it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Other clients held the lock for as long as `acquire` was to wait.
    NotAcquired(String),
    /// The lease is over: another client may hold the lock from now on. Stop.
    Lost(String),
    /// The lease was released, here.
    Released(String),
    /// A newer holder of the lock has been at the storage, so nothing was done there. Do not try it again under this token: take the lock again.
    /// It has no source, so nothing takes it for a passing failure of the database.
    Stale(String),
    /// The outcome is unknown: the request may have been carried out. What `acquire` may have got is given back in the background.
    Uncertain(String),
    /// No node answered, or none leads, for as long as the request could wait. It was not carried out.
    Unavailable(String),
    /// The client was closed.
    Closed,
    /// An argument is wrong.
    Argument(String),
    /// The service refuses it: surely not done, and sending it again will not help.
    Refused {
        /// The first word of the answer, such as NOPERM, WRONGPASS or LIMIT; or the name of the library's error.
        word: String,
        /// What happened, and what to do.
        message: String,
    },
    /// An error of the database, but for its STALE.
    #[cfg(feature = "postgres")]
    Postgres(tokio_postgres::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotAcquired(name) => write!(f, "fencelock: another client holds the lock {name:?}"),
            Error::Lost(name) => write!(f, "fencelock: the lock {name:?} is lost; another client may hold it from now on"),
            Error::Released(name) => write!(f, "fencelock: the lock {name:?} was released"),
            Error::Stale(why) => write!(f, "fencelock: a newer holder of the lock has been at the storage: {why}"),
            Error::Uncertain(why) => write!(f, "fencelock: the outcome is unknown: {why}"),
            Error::Unavailable(why) => write!(f, "fencelock: no node serves: {why}"),
            Error::Closed => write!(f, "fencelock: the client is closed: connect again"),
            Error::Argument(why) => write!(f, "fencelock: {why}"),
            Error::Refused { message, .. } => write!(f, "fencelock: {message}"),
            #[cfg(feature = "postgres")]
            Error::Postgres(e) => write!(f, "fencelock: the database: {e}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            #[cfg(feature = "postgres")]
            Error::Postgres(e) => Some(e),
            _ => None,
        }
    }
}

/// The text of the library; "" for NULL.
///
/// # Safety
/// `text` is NULL or a C string.
pub(crate) unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

/// The error of a result of the library. `name`: of the lock.
pub(crate) fn of(status: c_int, message: String, name: &str) -> Error {
    // SAFETY: these texts are valid for ever.
    let (known, code) = unsafe { (text_of(sys::fl_strerror(status)), text_of(sys::fl_err_name(status))) };
    let message = if message.is_empty() { known } else { message };
    match status {
        sys::FL_ENOTHELD => Error::NotAcquired(name.to_owned()),
        sys::FL_EINVAL => Error::Argument(message),
        sys::FL_EUNCERTAIN => Error::Uncertain(message),
        sys::FL_ENOLEADER | sys::FL_EBUSY | sys::FL_ENOCONN | sys::FL_ETIMEOUT => Error::Unavailable(message),
        _ => Error::Refused { word: word_of(&message).unwrap_or(code), message },
    }
}

/// The last `: WORD ` of a message is the first word of what the service said.
fn word_of(message: &str) -> Option<String> {
    let words = message.split(": ").skip(1).filter_map(|part| part.split_once(' ').map(|(word, _)| word));
    words.filter(|w| w.len() >= 3 && w.bytes().all(|b| b.is_ascii_uppercase())).last().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_word_of_a_refusal() {
        assert_eq!(super::word_of("node 1: NOPERM this user may not").as_deref(), Some("NOPERM"));
        assert_eq!(super::word_of("refused: a: WRONGPASS no: x"), Some("WRONGPASS".into()));
        assert_eq!(super::word_of("nothing"), None);
    }
}
