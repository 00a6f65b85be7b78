//! The structs of fencelock-sys are those of the header.

use fencelock_sys as sys;
use std::mem::{offset_of, size_of};
use std::process::Command;

macro_rules! layout {
    ($out:ident, $asked:ident, $($struct:ident { $($field:ident),* })*) => {$(
        $out.push(format!("{} {}", stringify!($struct), size_of::<sys::$struct>()));
        $asked.push_str(&format!("printf(\"{0} %zu\\n\", sizeof(struct {0}));", stringify!($struct)));
        $(
            $out.push(format!("{}.{} {}", stringify!($struct), stringify!($field), offset_of!(sys::$struct, $field)));
            $asked.push_str(&format!("printf(\"{0}.{1} %zu\\n\", offsetof(struct {0}, {1}));", stringify!($struct), stringify!($field)));
        )*
    )*};
}

#[test]
fn layouts() {
    let Ok(include) = std::env::var("FENCELOCK_INCLUDE") else { return };
    let (mut ours, mut asked) = (Vec::new(), String::new());
    layout!(ours, asked,
        fl_bytes { data, len }
        fl_tls_options { ca_file, cert_file, key_file, server_name }
        fl_client_options { timeout_ms, attempt_ms, owner, tls, user, password, own_loop, on_log, log_arg, reserved }
        fl_take { ttl_ms, wait_ms, timeout_ms, name, owner, value, session, mode, permits, also, also_len, alone, unrenewed, shares, max_hold_ms,
            reserve_ms, on_change, arg, min_validity_ms, lockdelay_ms, reserved }
        fl_result { status, error, lock, token, deadline_ms, locks, sessions, report }
        fl_event { kind, status, word, text, node, reason, name, owner, token, wait, clock_ms }
        fl_watch_options { names, names_len, patterns, patterns_len, quiet_ms, reserved });
    let numbers = [
        ("FL_MODE_SHARED", i64::from(sys::FL_MODE_SHARED)), ("FL_HOLD_LOST", i64::from(sys::FL_HOLD_LOST)),
        ("FL_EVENT_MISSED", i64::from(sys::FL_EVENT_MISSED)), ("FL_EVENT_LISTENS", i64::from(sys::FL_EVENT_LISTENS)),
        ("FL_EVENT_INTERRUPTED", i64::from(sys::FL_EVENT_INTERRUPTED)), ("FL_EINVAL", i64::from(sys::FL_EINVAL)),
        ("FL_ENOTHELD", i64::from(sys::FL_ENOTHELD)), ("FL_ENOLEADER", i64::from(sys::FL_ENOLEADER)), ("FL_EBUSY", i64::from(sys::FL_EBUSY)),
        ("FL_ENOCONN", i64::from(sys::FL_ENOCONN)), ("FL_EUNCERTAIN", i64::from(sys::FL_EUNCERTAIN)), ("FL_ETIMEOUT", i64::from(sys::FL_ETIMEOUT)),
        ("FL_WAIT_MAX_MS", sys::FL_WAIT_MAX_MS as i64),
    ];
    for (name, value) in numbers {
        ours.push(format!("{name} {value}"));
        asked.push_str(&format!("printf(\"{name} %lld\\n\", (long long){name});"));
    }
    let folder = std::env::temp_dir().join(format!("fencelock-abi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, format!("#include <stddef.h>\n#include <stdio.h>\n#include <fencelock/client.h>\nint main(void) {{ {asked} return 0; }}\n")).unwrap();
    assert!(Command::new("cc").args(["-I", &include, "-o"]).arg(&program).arg(&source).status().unwrap().success());
    let theirs = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(ours, theirs.lines().collect::<Vec<_>>());
}
