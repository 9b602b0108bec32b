//! Packed traces that only some can open: with their key, with the passphrase, and with nothing else.

use crate::common;

use age::secrecy::ExposeSecret;
use age::{x25519, Encryptor};
use common::{
    assert_same, run, system_program, Guest, Recording, Run, Workplace, OWN_FAILURE, REPRISE,
};
use reprise_trace::encrypted::{Keys, Recipients};
use reprise_trace::pack::{self, Packing};
use std::fs::read;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A new key of somebody: the public one as text, and a file with the secret one, as age-keygen writes it.
fn key(place: &Workplace) -> (String, PathBuf) {
    let identity = x25519::Identity::generate();
    let public = identity.to_public().to_string();
    let file = place.fresh("identity");
    let text = format!(
        "# public key: {public}\n{}\n",
        identity.to_string().expose_secret()
    );
    std::fs::write(&file, text).expect("written");
    (public, file)
}

fn recorded(place: &Workplace) -> Recording {
    let recording = place.record(&Guest::new("hello"));
    let said = recording.run.describe();
    assert!(recording.run.status.success(), "{said}");
    recording
}

/// Packs a trace, encrypted.
fn sealed(place: &Workplace, trace: &Path, words: &[&str]) -> PathBuf {
    let file = place.fresh("bug.reprise.age");
    let mut command = place.reprise(["pack", "-o"]);
    command.arg(&file).arg(trace).args(words);
    let packed = run(&mut command, None);
    assert!(packed.status.success(), "{}", packed.describe());
    assert!(packed.text().contains("encrypted"), "{}", packed.describe());
    file
}

fn command(place: &Workplace, words: &[&str], pack: &Path) -> Command {
    let mut command = place.reprise(words);
    command.arg(pack);
    command
}

/// The command fails with one line that has this in it.
fn assert_refused(out: &Run, said: &str) {
    out.assert_own_failure(OWN_FAILURE);
    assert!(out.said().contains(said), "{said}: {}", out.describe());
}

/// Nothing of a pack lies anywhere yet.
fn assert_nothing_unpacked(place: &Workplace) {
    let left = std::fs::read_dir(place.traces().join(".unpacked"));
    let left: Vec<_> = left.into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn who_has_one_of_the_keys_opens_it_and_nobody_else_does() {
    let place = Workplace::new();
    let recording = recorded(&place);
    let ((ann, anns), (bob, bobs), (_, eves)) = (key(&place), key(&place), key(&place));
    let team = place.fresh("team");
    std::fs::write(&team, format!("# the team\n\n{bob}\n")).expect("written");
    let team = team.to_str().expect("text");
    let file = sealed(
        &place,
        &recording.dir,
        &["--encrypt", &ann, "--encrypt", team],
    );
    for words in [
        &["replay"][..],
        &["info"],
        &["dump"],
        &["backtrace"],
        &["verify", "-n", "1"],
    ] {
        let out = run(&mut command(&place, words, &file), None);
        assert_refused(
            &out,
            "say where yours is by --identity FILE or by REPRISE_IDENTITY",
        );
        let out = run(
            command(&place, words, &file).arg("--identity").arg(&eves),
            None,
        );
        assert_refused(&out, "fits: it is for others, or damaged");
    }
    assert_nothing_unpacked(&place);
    // Bob by the environment, and among other keys.
    let out = run(
        command(&place, &["replay"], &file).env("REPRISE_IDENTITY", &bobs),
        None,
    );
    assert_same(&recording.run, &out);
    let again = place.fresh("again.reprise.age");
    std::fs::copy(&file, &again).expect("copied");
    let mut info = command(&place, &["info"], &again);
    let out = run(
        info.arg("--identity")
            .arg(&eves)
            .arg("--identity")
            .arg(&anns),
        None,
    );
    assert!(
        out.text().contains("again.reprise.age"),
        "{}",
        out.describe()
    );
    // What is in it is the pack that everybody could open.
    let plain = place.fresh("plain.reprise");
    pack::pack(&recording.dir, &plain).expect("packed");
    let mut inside = Vec::new();
    let keys = Keys {
        identities: vec![anns],
        ..Keys::default()
    };
    let mut opened = keys.decrypt(&file).expect("opened");
    std::io::Read::read_to_end(&mut opened, &mut inside).expect("read");
    assert!(
        inside == read(&plain).expect("the pack"),
        "another pack is in it"
    );
}

#[test]
fn a_passphrase_opens_it_and_another_one_does_not() {
    let place = Workplace::new();
    let recording = recorded(&place);
    let file = place.fresh("bug.reprise.age");
    let with =
        |mut command: Command, word: &str| run(command.env("REPRISE_PASSPHRASE", word), None);
    let mut packing = place.reprise(["pack", "-q", "--passphrase", "-o"]);
    packing.arg(&file).arg(&recording.dir);
    let packed = with(packing, "correct horse");
    assert!(packed.status.success(), "{}", packed.describe());
    assert_refused(
        &with(command(&place, &["replay"], &file), "battery staple"),
        "the passphrase is wrong, or the file is damaged",
    );
    // Nobody is asked where standard input is no terminal, as a server's isn't, though there is one; nor where there is none.
    let words = format!("{REPRISE} replay {} < /dev/null", file.display());
    let mut terminal = Command::new(system_program("script"));
    terminal.args(["-qec", &words, "/dev/null"]);
    place.settle(&mut terminal);
    let asked = run(&mut terminal, None);
    let said = "it wants a passphrase: REPRISE_PASSPHRASE may have it";
    assert!(asked.text().contains(said), "{}", asked.describe());
    let alone = run(&mut command(&place, &["replay"], &file), None);
    assert_refused(&alone, said);
    // One that would cost hours is not tried.
    let mut costly = read(&file).expect("the pack");
    let at = costly
        .windows(4)
        .position(|w| w == b" 18\n")
        .expect("the work");
    costly[at + 1..at + 3].copy_from_slice(b"40");
    let other = place.fresh("costly.age");
    std::fs::write(&other, costly).expect("written");
    assert_refused(
        &with(command(&place, &["info"], &other), "correct horse"),
        "the limit is 2^22",
    );
    assert_nothing_unpacked(&place);
    assert_same(
        &recording.run,
        &with(command(&place, &["replay"], &file), "correct horse"),
    );
}

#[test]
fn no_pack_is_made_to_what_is_no_key() {
    let place = Workplace::new();
    let recording = recorded(&place);
    let (_, secret) = key(&place);
    let (strange, sealed_key, large) = (
        place.fresh("strange"),
        place.fresh("sealed"),
        place.fresh("large"),
    );
    std::fs::write(&strange, "ssh-ed25519 AAAA ann\n").expect("written");
    std::fs::write(&sealed_key, "age-encryption.org/v1\n").expect("written");
    std::fs::write(&large, vec![b'\n'; (1 << 20) + 1]).expect("written");
    for (to, said) in [
        (Path::new("age1nonsense"), "can't use age1nonsense: "),
        (&secret, "line 2 is no public key"),
        (&strange, "line 1 is no public key"),
        (&sealed_key, "is encrypted itself"),
        (&large, "too large"),
        (&place.fresh("none"), "No such file"),
        (Path::new("/dev/null"), "there is no public key"),
    ] {
        let file = place.fresh("bug.reprise.age");
        let mut command = place.reprise(["pack", "-o"]);
        command
            .arg(&file)
            .arg(&recording.dir)
            .arg("--encrypt")
            .arg(to);
        assert_refused(&run(&mut command, None), said);
        assert!(!file.exists());
    }
    let mut both = place.reprise(["pack", "--passphrase", "--encrypt", "age1"]);
    assert_refused(&run(&mut both, None), "cannot be used with");
}

/// Whether it is opened, and what is said if not; nothing is left of it then.
fn unpacked(place: &Workplace, file: &Path, keys: &Keys, most: u64) -> Result<(), String> {
    let dir = place.fresh("unpacked");
    let done = pack::unpack_with(file, &dir, most, keys);
    assert_eq!(done.is_ok(), dir.exists());
    done.map_err(|e| e.to_string())
}

#[test]
fn what_was_changed_cut_off_or_is_too_large_is_refused_in_one_line() {
    let place = Workplace::new();
    let recording = recorded(&place);
    let (public, identity) = key(&place);
    let to = Recipients::keys(&[&public]).expect("a key");
    let file = place.fresh("bug.reprise.age");
    let packing = Packing {
        recipients: Some(&to),
        ..Packing::default()
    };
    pack::pack_with(&recording.dir, &file, &packing).expect("packed");
    let keys = Keys {
        identities: vec![identity.clone()],
        ..Keys::default()
    };
    let whole = read(&file).expect("the pack");
    let most = 1 << 30;
    unpacked(&place, &file, &keys, most).expect("it is good");
    // The bound on what it becomes holds, and is told as ever.
    let too_large = unpacked(&place, &file, &keys, 1 << 16).expect_err("a bound");
    assert!(too_large.contains("--max-unpacked"), "{too_large}");
    let header = whole
        .windows(5)
        .position(|w| w == b"\n--- ")
        .expect("an end")
        + 50;
    let changed = place.fresh("changed.age");
    let check = |bytes: &[u8], what: String| {
        std::fs::write(&changed, bytes).expect("written");
        let said = unpacked(&place, &changed, &keys, most).expect_err(&what);
        let told = ["damaged", "not a trace", "can't decrypt"]
            .iter()
            .any(|w| said.contains(w));
        assert!(told && !said.contains('\n'), "{what}: {said}");
    };
    // Each byte of the header, and some of the rest; chunks have 64 KiB, and 16 bytes that seal them.
    let chunk = (64 << 10) + 16;
    let start = header + 16;
    let ends = (1..)
        .map(|n| start + n * chunk)
        .take_while(|at| *at < whole.len());
    let ends: Vec<usize> = ends.collect();
    assert!(ends.len() > 3, "{} bytes", whole.len());
    let places = (0..header).chain([start, start + 7, start + chunk - 1, whole.len() - 1]);
    for at in places.chain(ends.iter().step_by(9).copied()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        check(&bytes, format!("byte {at} changed"));
    }
    let cuts = (0..start)
        .step_by(17)
        .chain([start, start + 1, whole.len() - 1]);
    for at in cuts
        .chain(ends.iter().step_by(9).copied())
        .chain(ends.last().copied())
    {
        check(&whole[..at], format!("cut off at byte {at}"));
    }
    check(&[&whole[..], b"x"].concat(), "a byte more".into());
    let swapped = [
        &whole[..start],
        &whole[ends[0]..ends[1]],
        &whole[start..ends[0]],
        &whole[ends[1]..],
    ];
    check(&swapped.concat(), "two chunks in each other's place".into());
    // A header without an end is not looked for one for ever.
    let mut endless = b"age-encryption.org/v1\n".to_vec();
    endless.extend(b"-> X25519 ".repeat(100_000));
    check(&endless, "an endless header".into());
    // Somebody encrypts something else.
    let encryptor = Encryptor::with_recipients(std::iter::once(
        &public.parse::<x25519::Recipient>().expect("a key") as _,
    ));
    let mut out = encryptor
        .expect("a key")
        .wrap_output(Vec::new())
        .expect("memory");
    out.write_all(&[7; 100]).expect("memory");
    check(&out.finish().expect("memory"), "no pack in it".into());
    // And by the command.
    std::fs::write(&changed, &whole[..whole.len() - 1]).expect("written");
    let out = run(
        command(&place, &["replay"], &changed)
            .arg("--identity")
            .arg(&identity),
        None,
    );
    assert_refused(&out, "it was changed or cut off after it was encrypted");
}
