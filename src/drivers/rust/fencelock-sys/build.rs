//! Links libfencelock: the installed one, or that in the folder FENCELOCK_LIB_DIR.
fn main() {
    println!("cargo:rerun-if-env-changed=FENCELOCK_LIB_DIR");
    if let Ok(folder) = std::env::var("FENCELOCK_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
    }
    println!("cargo:rustc-link-lib=dylib=fencelock");
}
