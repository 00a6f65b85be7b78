//! The functions and structs of libfencelock that the crate `fencelock` uses, as include/fencelock/client.h has them. The header says what
//! each does, and which thread may call it. Use the crate `fencelock` in programs.
#![no_std]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub struct fl_client {
    _private: [u8; 0],
}
#[repr(C)]
pub struct fl_lock {
    _private: [u8; 0],
}
pub type fl_call = u64;
#[repr(C)]
pub struct fl_watch {
    _private: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fl_bytes {
    pub data: *const c_void,
    pub len: usize,
}

#[repr(C)]
pub struct fl_tls_options {
    pub ca_file: *const c_char,
    pub cert_file: *const c_char,
    pub key_file: *const c_char,
    pub server_name: *const c_char,
}

#[repr(C)]
pub struct fl_client_options {
    pub timeout_ms: u64,
    pub attempt_ms: u64,
    pub owner: fl_bytes,
    pub tls: *const fl_tls_options,
    pub user: *const c_char,
    pub password: *const c_char,
    pub own_loop: bool,
    pub on_log: Option<unsafe extern "C" fn(arg: *mut c_void, text: *const c_char)>,
    pub log_arg: *mut c_void,
    pub reserved: [u64; 8],
}

pub const FL_MODE_EXCLUSIVE: c_int = 0;
pub const FL_MODE_SHARED: c_int = 1;
pub const FL_WAIT_MAX_MS: u64 = 86_400_000;

pub const FL_HOLD_SAFE: c_int = 0;
pub const FL_HOLD_JEOPARDY: c_int = 1;
pub const FL_HOLD_LOST: c_int = 2;

#[repr(C)]
pub struct fl_take {
    pub ttl_ms: u64,
    pub wait_ms: u64,
    pub timeout_ms: u64,
    pub name: fl_bytes,
    pub owner: fl_bytes,
    pub value: fl_bytes,
    pub session: *mut fl_lock,
    pub mode: c_int,
    pub permits: u64,
    pub also: *const fl_bytes,
    pub also_len: usize,
    pub alone: bool,
    pub unrenewed: bool,
    pub shares: bool,
    pub max_hold_ms: u64,
    pub reserve_ms: u64,
    pub on_change: Option<unsafe extern "C" fn(arg: *mut c_void, lock: *mut fl_lock, state: c_int)>,
    pub arg: *mut c_void,
    pub min_validity_ms: u64,
    pub lockdelay_ms: u64,
    pub reserved: [u64; 6],
}

#[repr(C)]
pub struct fl_result {
    pub status: c_int,
    pub error: *const c_char,
    pub lock: *mut fl_lock,
    pub token: u64,
    pub deadline_ms: u64,
    pub locks: *mut c_void,
    pub sessions: *mut c_void,
    pub report: *mut c_void,
}

pub type fl_done = Option<unsafe extern "C" fn(arg: *mut c_void, result: *const fl_result)>;

pub const FL_EVENT_MISSED: c_int = 7;
pub const FL_EVENT_LISTENS: c_int = 8;
pub const FL_EVENT_INTERRUPTED: c_int = 9;

#[repr(C)]
pub struct fl_event {
    pub kind: c_int,
    pub status: c_int,
    pub word: *const c_char,
    pub text: *const c_char,
    pub node: *const c_char,
    pub reason: *const c_char,
    pub name: fl_bytes,
    pub owner: fl_bytes,
    pub token: u64,
    pub wait: u64,
    pub clock_ms: u64,
}

#[repr(C)]
pub struct fl_watch_options {
    pub names: *const fl_bytes,
    pub names_len: usize,
    pub patterns: *const fl_bytes,
    pub patterns_len: usize,
    pub quiet_ms: u64,
    pub reserved: [u64; 8],
}

pub const FL_EINVAL: c_int = -1001;
pub const FL_ENOLEADER: c_int = -1004;
pub const FL_EBUSY: c_int = -1005;
pub const FL_ENOTHELD: c_int = -1013;
pub const FL_ENOCONN: c_int = -1014;
pub const FL_EUNCERTAIN: c_int = -1101;
pub const FL_ETIMEOUT: c_int = -1102;

extern "C" {
    pub fn fl_open(nodes: *const c_char, options: *const fl_client_options, ret: *mut *mut fl_client) -> c_int;
    pub fn fl_close(c: *mut fl_client);
    pub fn fl_client_error(c: *const fl_client) -> *const c_char;
    pub fn fl_now_ms() -> u64;
    pub fn fl_fd(c: *const fl_client) -> c_int;
    pub fn fl_process(c: *mut fl_client);
    pub fn fl_strerror(code: c_int) -> *const c_char;
    pub fn fl_err_name(code: c_int) -> *const c_char;
    pub fn fl_lock_take_start(c: *mut fl_client, name: *const c_char, options: *const fl_take, done: fl_done, arg: *mut c_void, ret_call: *mut fl_call) -> c_int;
    pub fn fl_lock_release_start(lock: *mut fl_lock, timeout_ms: u64, done: fl_done, arg: *mut c_void) -> c_int;
    pub fn fl_call_cancel(c: *mut fl_client, call: fl_call);
    pub fn fl_lock_state(lock: *mut fl_lock) -> c_int;
    pub fn fl_lock_remaining_ms(lock: *mut fl_lock) -> u64;
    pub fn fl_watch_open(c: *mut fl_client, pattern: *const c_char, options: *const fl_watch_options, ret: *mut *mut fl_watch) -> c_int;
    pub fn fl_watch_poll(watch: *mut fl_watch) -> *const fl_event;
    pub fn fl_watch_close(watch: *mut fl_watch);
}
