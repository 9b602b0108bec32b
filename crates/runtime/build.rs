//! Link arguments of the image; the library on the host needs none.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        for arg in [
            "-e",
            "rt_start",
            "--undefined=rt_start_replay",
            "--undefined=rt_start_attached",
            "-z",
            "norelro",
            "--build-id=none",
            "-z",
            "separate-code",
        ] {
            println!("cargo:rustc-link-arg-bins={arg}");
        }
    }
}
