//! Who has made a packed trace: a signature in a file of its own beside it, `PACK.minisig`, in the format of minisign.
//!
//! Such files are made here or by the program `minisign`, and both check what the other has made. A signature that fits says that who has the
//! secret key has signed exactly these bytes; whose key that is only those know whom the user trusts: a directory with their public keys,
//! each in a file NAME.pub. A file without a signature, or with one of an unknown key, is a trace of somebody like any other.

use crate::error::Context;
use crate::{Result, TraceError};
use ct_codecs::{Base64, Decoder};
use minisign::{PublicKey, PublicKeyBox, SecretKey, SecretKeyBox, SignatureBox};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the directory with the trusted public keys, beside the traces, when [`TRUSTED_KEYS_VARIABLE`] names no other one.
pub const TRUSTED_KEYS_DIR: &str = "trusted-keys";
/// The variable of the environment that names the directory with the trusted public keys.
pub const TRUSTED_KEYS_VARIABLE: &str = "REPRISE_TRUSTED_KEYS";

/// Ending of a signature's name, behind the whole name of what it signs.
const ENDING: &str = ".minisig";
/// Most bytes of a key or of a signature.
const MAX_TEXT: u64 = 16 << 10;
/// Characters of the second signature in base64, with which minisign signs the comment: one of another length is none.
const SIGNATURE_TEXT: usize = 88;
/// How a secret key begins in base64 that no password protects: the algorithm, and none for the password.
const WITHOUT_PASSWORD: &str = "RWQA";
/// Bytes of a secret key, with all that stands around it.
const SECRET_KEY: usize = 158;
/// Bytes of its checksum, the last of them.
const CHECKSUM: usize = 32;
/// How a public key begins: the algorithm.
const ED25519: &[u8] = b"Ed";

/// Who has signed a packed trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Signer {
    /// Somebody whom the user trusts.
    Trusted {
        /// Their name, as the file of their key has it.
        name: String,
        /// What they have said, which is signed as well; it may have any characters.
        comment: String,
    },
    /// Somebody whose key the user does not have; nothing was checked.
    Unknown {
        /// The number of the key, as minisign writes it.
        key: String,
    },
}

impl std::fmt::Display for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tame = |text: &str| text.replace(char::is_control, " ");
        match self {
            Signer::Trusted { name, comment } if comment.is_empty() => {
                write!(f, "signed by {}", tame(name))
            }
            Signer::Trusted { name, comment } => {
                write!(f, "signed by {} ({})", tame(name), tame(comment))
            }
            Signer::Unknown { key } => write!(f, "signed by an unknown key {key}"),
        }
    }
}

/// Where the signature of this packed trace lies, if it has one.
pub fn path_of(packed: &Path) -> PathBuf {
    let mut name = OsString::from(packed.as_os_str());
    name.push(ENDING);
    name.into()
}

/// Reads the secret key in this file; `ask` is asked for its password, if it has one.
///
/// # Errors
/// [`TraceError::Key`] when it is none, or the password is wrong.
pub fn secret_key(
    path: &Path,
    ask: impl FnOnce() -> std::result::Result<String, String>,
) -> Result<SecretKey> {
    let bad = |why: String| TraceError::Key {
        path: path.into(),
        why,
    };
    let text = read_text(path)?;
    let is_open = text
        .lines()
        .nth(1)
        .is_some_and(|line| line.starts_with(WITHOUT_PASSWORD));
    let boxed = SecretKeyBox::from(text.clone());
    let key = match is_open {
        true => match without_checksum(&text) {
            Some(key) => Ok(key),
            None => boxed.into_unencrypted_secret_key(),
        },
        // Before anybody is asked for a password.
        false if !text.starts_with("untrusted comment:") => {
            return Err(bad("it is no secret key of minisign's".into()))
        }
        false => boxed.into_secret_key(Some(ask().map_err(bad)?)),
    };
    key.map_err(|e| bad(e.to_string()))
}

/// A key without a password as `minisign -GW` writes it, which puts zeros in the place of the checksum.
fn without_checksum(text: &str) -> Option<SecretKey> {
    let bytes = Base64::decode_to_vec(text.lines().nth(1)?.trim(), None).ok()?;
    let at = bytes.len().checked_sub(CHECKSUM)?;
    let has_none = bytes.len() == SECRET_KEY && bytes[at..].iter().all(|b| *b == 0);
    has_none.then(|| SecretKey::from_bytes(&bytes).ok())?
}

/// Signs the packed trace with this key; the signature's path.
///
/// # Errors
/// [`TraceError::Exists`] when there is a signature already.
pub fn sign(packed: &Path, key: &SecretKey) -> Result<PathBuf> {
    let target = path_of(packed);
    let file = File::open(packed).context("open", packed)?;
    let name = packed.file_name().unwrap_or_default().to_string_lossy();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    // As the program minisign has it.
    let comment = format!(
        "timestamp:{now}\tfile:{}\thashed",
        name.replace(char::is_control, "?")
    );
    let about = "signature of a packed trace of Reprise";
    let signed = minisign::sign(None, key, file, Some(&comment), Some(about));
    let signed = signed.map_err(|e| TraceError::Key {
        path: target.clone(),
        why: e.to_string(),
    })?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&target);
    let mut file = match file {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(TraceError::Exists { path: target })
        }
        other => other.context("create", &target)?,
    };
    file.write_all(signed.into_string().as_bytes())
        .context("write", &target)?;
    Ok(target)
}

/// Who has signed the packed trace; `None` when there is no signature beside it. `keys` is the directory with the trusted public keys; it need not
/// be there.
///
/// # Errors
/// [`TraceError::Signature`] when the signature is one of a trusted key, but not of this file, or is none at all; when a trusted key can't be read.
pub fn signer(packed: &Path, keys: &Path) -> Result<Option<Signer>> {
    let path = path_of(packed);
    let text = match read_text(&path) {
        Err(TraceError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None)
        }
        other => other?,
    };
    let refused = |why: &str| TraceError::Signature {
        path: path.clone(),
        packed: packed.into(),
        why: why.into(),
    };
    let whole = text
        .lines()
        .nth(3)
        .is_some_and(|line| line.trim().len() == SIGNATURE_TEXT);
    let signature = match SignatureBox::from_string(&text) {
        Ok(signature) if whole => signature,
        _ => return Err(refused("it is no signature of minisign's")),
    };
    let number = key_number(signature.keynum());
    let mut of_a_trusted_key = false;
    for (name, key) in trusted(keys)? {
        if key.keynum() != signature.keynum() {
            continue;
        }
        of_a_trusted_key = true;
        if !signature.is_prehashed() {
            return Err(refused(
                "it is of minisign's old kind, which is not taken any more",
            ));
        }
        let file = File::open(packed).context("open", packed)?;
        if minisign::verify(&key, &signature, file, true, false, false).is_ok() {
            let comment = signature.trusted_comment().unwrap_or_default();
            return Ok(Some(Signer::Trusted { name, comment }));
        }
    }
    match of_a_trusted_key {
        true => Err(refused(&format!(
            "the trusted key {number} has not signed what is in it"
        ))),
        false => Ok(Some(Signer::Unknown { key: number })),
    }
}

/// The trusted keys, in order of their names.
fn trusted(keys: &Path) -> Result<Vec<(String, PublicKey)>> {
    let entries = match std::fs::read_dir(keys) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.context("read", keys)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.context("read", keys)?.path();
        if path.extension().is_some_and(|e| e == "pub") {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let key = PublicKeyBox::from(read_text(&path)?).into_public_key();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        match key {
            Ok(key) if key.to_bytes().starts_with(ED25519) => Ok((name.into_owned(), key)),
            _ => Err(TraceError::Key {
                path: path.clone(),
                why: "it is no public key of minisign's".into(),
            }),
        }
    };
    paths.into_iter().map(read).collect()
}

/// The number of a key, as minisign writes it.
fn key_number(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|b| format!("{b:02X}")).collect()
}

/// Reads a key or a signature: a short file, and nothing that keeps its reader waiting.
fn read_text(path: &Path) -> Result<String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .context("open", path)?;
    let strange = |why: &str| TraceError::Key {
        path: path.into(),
        why: why.into(),
    };
    if !file.metadata().context("read", path)?.is_file() {
        return Err(strange("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_TEXT + 1)
        .read_to_end(&mut bytes)
        .context("read", path)?;
    match String::from_utf8(bytes) {
        Ok(text) if text.len() as u64 <= MAX_TEXT => Ok(text),
        _ => Err(strange("it is no text of minisign's")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minisign::KeyPair;

    fn pair(dir: &Path, name: &str) -> SecretKey {
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        let text = pair.pk.to_box().unwrap().into_string();
        std::fs::write(dir.join(format!("{name}.pub")), text).unwrap();
        pair.sk
    }

    #[test]
    fn a_signature_fits_one_file_and_one_key() {
        let t = tempfile::tempdir().unwrap();
        let (keys, others) = (t.path().join("keys"), t.path().join("others"));
        std::fs::create_dir(&keys).unwrap();
        std::fs::create_dir(&others).unwrap();
        let packed = t.path().join("packed");
        std::fs::write(&packed, "a trace").unwrap();
        assert_eq!(signer(&packed, &keys).unwrap(), None);
        let key = pair(&keys, "ann");
        pair(&others, "bob");
        sign(&packed, &key).unwrap();
        let found = signer(&packed, &keys).unwrap().unwrap().to_string();
        assert!(found.starts_with("signed by ann (timestamp:"), "{found}");
        assert!(!found.contains('\t'), "{found}");
        for dir in [&others, &t.path().join("nothing")] {
            let found = signer(&packed, dir).unwrap();
            assert!(matches!(found, Some(Signer::Unknown { .. })), "{found:?}");
        }
        assert!(matches!(
            sign(&packed, &key),
            Err(TraceError::Exists { .. })
        ));
        std::fs::write(&packed, "a trick").unwrap();
        let refused = signer(&packed, &keys).unwrap_err();
        assert!(
            matches!(refused, TraceError::Signature { .. }),
            "{refused:?}"
        );
    }

    #[test]
    fn a_key_without_a_checksum_is_taken_and_a_wrong_one_is_not() {
        use ct_codecs::Encoder;
        let t = tempfile::tempdir().unwrap();
        let key = pair(t.path(), "ann");
        let path = t.path().join("secret");
        let mut bytes = key.to_bytes();
        let mut read = |change: &dyn Fn(&mut [u8])| {
            change(&mut bytes[SECRET_KEY - CHECKSUM..]);
            let text = Base64::encode_to_string(&bytes).unwrap();
            std::fs::write(&path, format!("untrusted comment: x\n{text}\n")).unwrap();
            secret_key(&path, || panic!("it has no password"))
        };
        assert!(read(&|_| ()).is_ok());
        assert!(read(&|sum| sum[0] ^= 1).is_err());
        let packed = t.path().join("packed");
        std::fs::write(&packed, "a trace").unwrap();
        sign(&packed, &read(&|sum| sum.fill(0)).unwrap()).unwrap();
        assert!(matches!(
            signer(&packed, t.path()).unwrap(),
            Some(Signer::Trusted { .. })
        ));
    }

    #[test]
    fn what_is_no_signature_panics_nowhere() {
        let t = tempfile::tempdir().unwrap();
        let packed = t.path().join("packed");
        std::fs::write(&packed, "a trace").unwrap();
        let key = pair(t.path(), "ann");
        let path = sign(&packed, &key).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for at in 0..text.len() {
            // Cut off, and with each character changed; what stands in the first line is not signed.
            std::fs::write(&path, &text[..at]).unwrap();
            assert!(signer(&packed, t.path()).is_err() || at + 1 == text.len());
            let mut other = text.clone().into_bytes();
            other[at] ^= 1;
            std::fs::write(&path, other).unwrap();
            let _ = signer(&packed, t.path());
        }
        let lines: Vec<&str> = text.lines().collect();
        for (line, new) in [(1, "RWQ="), (3, "RWQ="), (3, "")] {
            let mut lines = lines.clone();
            lines[line] = new;
            std::fs::write(&path, lines.join("\n")).unwrap();
            let refused = signer(&packed, t.path()).unwrap_err();
            assert!(
                matches!(refused, TraceError::Signature { .. }),
                "{refused:?}"
            );
        }
        let comment = text.replace("timestamp:", "timestamp:9");
        std::fs::write(&path, comment).unwrap();
        assert!(signer(&packed, t.path()).is_err());
    }
}
