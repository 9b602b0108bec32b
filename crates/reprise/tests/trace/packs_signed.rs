//! Packed traces with a signature: whose it is, and what is done with one that does not fit.

use crate::common;

use common::{
    assert_same, run, system_program, Guest, Recording, Run, Workplace, OWN_FAILURE, REPRISE,
};
use minisign::{KeyPair, SecretKey};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A new key of somebody, without a password: the secret one in a file, the public one in `trusted`.
fn key(place: &Workplace, name: &str, trusted: &Path) -> PathBuf {
    std::fs::create_dir_all(trusted).expect("a directory");
    let pair = KeyPair::generate_unencrypted_keypair().expect("a key");
    let public = pair.pk.to_box().expect("text").into_string();
    std::fs::write(trusted.join(format!("{name}.pub")), public).expect("written");
    let secret = place.fresh("secret");
    write_secret(&pair.sk, &secret);
    secret
}

fn write_secret(key: &SecretKey, path: &Path) {
    let text = key.to_box(None).expect("text").into_string();
    std::fs::write(path, text).expect("written");
}

fn recorded(place: &Workplace) -> Recording {
    let recording = place.record(&Guest::new("hello"));
    let said = recording.run.describe();
    assert!(recording.run.status.success(), "{said}");
    recording
}

/// Packs a trace and signs it.
fn signed(place: &Workplace, trace: &Path, key: &Path) -> (Run, PathBuf) {
    let file = place.fresh("bug.reprise");
    let mut command = place.reprise(["pack", "-o"]);
    command.arg(&file).arg(trace).arg("--sign").arg(key);
    (run(&mut command, None), file)
}

fn command(place: &Workplace, words: &[&str], pack: &Path) -> Run {
    run(place.reprise(words).arg(pack), None)
}

#[test]
fn who_is_trusted_is_named() {
    let place = Workplace::new();
    let recording = recorded(&place);
    let secret = key(&place, "ann", &place.traces().join("trusted-keys"));
    let (packed, file) = signed(&place, &recording.dir, &secret);
    assert!(packed.status.success(), "{}", packed.describe());
    assert!(packed.text().contains(".minisig"), "{}", packed.describe());
    for words in [
        &["replay"][..],
        &["verify", "-n", "1"],
        &["backtrace"],
        &["dump"],
        &["ps"],
    ] {
        let out = command(&place, words, &file);
        assert!(out.status.success(), "{}", out.describe());
        let lines = out.notes.matches("signed by ann (timestamp:").count();
        assert_eq!(lines, 1, "{}", out.describe());
    }
    let quiet = command(&place, &["replay", "-q"], &file);
    assert_same(&recording.run, &quiet);
    assert!(!quiet.notes.contains("signed"), "{}", quiet.describe());
    let info = command(&place, &["info"], &file);
    assert!(info.text().contains("signed by ann"), "{}", info.describe());
    // The directory of keys beside the traces is none.
    let listed = run(&mut place.reprise(["ls"]), None);
    assert!(!listed.text().contains("trusted"), "{}", listed.describe());
}

#[test]
fn a_key_that_nobody_trusts_is_told_and_keeps_nobody_from_replaying() {
    let place = Workplace::new();
    let recording = recorded(&place);
    let elsewhere = place.fresh_dir("keys");
    let secret = key(&place, "ann", &elsewhere);
    let (packed, file) = signed(&place, &recording.dir, &secret);
    assert!(packed.status.success(), "{}", packed.describe());
    key(&place, "bob", &place.traces().join("trusted-keys"));
    let replay = command(&place, &["replay"], &file);
    assert_same(&recording.run, &replay);
    let said = "signed by an unknown key ";
    assert!(replay.notes.contains(said), "{}", replay.describe());
    // The keys may be elsewhere.
    let mut there = place.reprise(["replay"]);
    there.arg(&file).env("REPRISE_TRUSTED_KEYS", &elsewhere);
    let replay = run(&mut there, None);
    assert_same(&recording.run, &replay);
    let said = "signed by ann";
    assert!(replay.notes.contains(said), "{}", replay.describe());
}

#[test]
fn what_is_not_what_was_signed_is_refused() {
    let place = Workplace::new();
    let recording = recorded(&place);
    let secret = key(&place, "ann", &place.traces().join("trusted-keys"));
    let (packed, file) = signed(&place, &recording.dir, &secret);
    assert!(packed.status.success(), "{}", packed.describe());
    // It has been unpacked before, which is of no use to who changes it.
    let before = command(&place, &["replay"], &file);
    assert_same(&recording.run, &before);
    // Another trace is in the place of the one that was signed.
    let other = place.record(&Guest::new("environment"));
    let (whole, second) = signed(&place, &other.dir, &secret);
    assert!(whole.status.success(), "{}", whole.describe());
    let mut bytes = std::fs::read(&file).expect("the pack");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    let changes = [bytes, std::fs::read(second).expect("the other")];
    for bytes in changes {
        std::fs::write(&file, bytes).expect("written");
        let core = place.fresh("core");
        for words in [
            &["replay"][..],
            &["verify"],
            &["backtrace"],
            &["core", "end", "-o", core.to_str().expect("text")],
            &["info"],
            &["dump"],
            &["replay", "-q"],
        ] {
            let out = command(&place, words, &file);
            out.assert_own_failure(OWN_FAILURE);
            let said = "is not what its signature";
            assert!(out.said().contains(said), "{}", out.describe());
        }
    }
}

#[test]
fn what_lies_there_as_a_signature_is_one() {
    let place = Workplace::new();
    let recording = recorded(&place);
    let trusted = place.traces().join("trusted-keys");
    let secret = key(&place, "ann", &trusted);
    let (packed, file) = signed(&place, &recording.dir, &secret);
    assert!(packed.status.success(), "{}", packed.describe());
    let signature = reprise_trace::signature::path_of(&file);
    let genuine = std::fs::read_to_string(&signature).expect("the signature");
    for text in ["", "something", &genuine.replace("timestamp", "weather")] {
        std::fs::write(&signature, text).expect("written");
        command(&place, &["replay"], &file).assert_own_failure(OWN_FAILURE);
    }
    std::fs::remove_file(&signature).expect("removed");
    let name = std::ffi::CString::new(signature.to_str().expect("text")).expect("no zero");
    // SAFETY: a string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    command(&place, &["replay"], &file).assert_own_failure(OWN_FAILURE);
    std::fs::remove_file(&signature).expect("removed");
    std::fs::write(&signature, &genuine).expect("written");
    assert_same(&recording.run, &command(&place, &["replay"], &file));
    // Nor can a trusted key be something else.
    std::fs::write(trusted.join("bob.pub"), "bob").expect("written");
    let out = command(&place, &["replay"], &file);
    out.assert_own_failure(OWN_FAILURE);
    assert!(out.said().contains("bob.pub"), "{}", out.describe());
}

#[test]
fn no_pack_is_made_that_can_not_be_signed() {
    let place = Workplace::new();
    let recording = recorded(&place);
    let (none, strange, locked) = (
        place.fresh("none"),
        place.fresh("strange"),
        place.fresh("locked"),
    );
    std::fs::write(&strange, "not a key").expect("written");
    let pair = KeyPair::generate_encrypted_keypair(Some("word".into())).expect("a key");
    write_secret(&pair.sk, &locked);
    for (path, said) in [
        (none, "No such file"),
        (strange, "no secret key"),
        // No terminal here, as in a script.
        (locked, "no terminal"),
    ] {
        let file = place.fresh("bug.reprise");
        // In a session of its own, which has no terminal.
        let mut command = Command::new(system_program("setsid"));
        command.args(["-w", REPRISE, "pack", "-o"]).arg(&file);
        command.arg(&recording.dir).arg("--sign").arg(&path);
        place.settle(&mut command);
        let out = run(&mut command, None);
        out.assert_own_failure(OWN_FAILURE);
        assert!(out.said().contains(said), "{}", out.describe());
        assert!(!file.exists());
    }
}
