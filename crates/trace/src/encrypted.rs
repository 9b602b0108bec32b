//! Packed traces that only some can open: a pack inside of an age file (<https://age-encryption.org/v1>), to X25519 keys or to a passphrase.
//!
//! The programs `age` and `rage` make such files and open them, and `age-keygen` makes the keys. What they need of an age file is done by the crate
//! `age`. The file may come from anyone: its header is bounded before it is parsed, and so is the work that a passphrase may cost.

use crate::error::Context;
use crate::{Result, TraceError};
use age::secrecy::SecretString;
use age::stream::StreamReader;
use age::{scrypt, x25519, DecryptError, Decryptor, Encryptor, Identity, Recipient};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Ending of the name of an encrypted pack, behind that of a pack.
pub const EXTENSION: &str = "age";

/// What an age file begins with; the text form ("armor") begins otherwise, and is not taken.
const MAGIC: &[u8] = b"age-encryption.org/v1\n";
/// Begins the last line of a header, which is not parsed before it was seen.
const HEADER_END: &[u8] = b"\n--- ";
/// Most bytes of a header: some 600 recipients.
const MAX_HEADER: u64 = 64 << 10;
/// Most keys that a pack is encrypted to, so that its header is taken.
const MAX_RECIPIENTS: usize = 500;
/// Most bytes of a file with keys.
const MAX_KEYS: u64 = 1 << 20;
/// A passphrase costs 2^18 rounds of scrypt and 256 MiB: about a second. As age has it.
const WORK: u8 = 18;
/// Most that a file may ask for: 2^22 rounds, 4 GiB. As age has it.
const MAX_WORK: u8 = 22;
/// What a public key begins with.
const PUBLIC: &str = "age1";

/// For whom a pack is encrypted.
pub enum Recipients {
    /// Whoever has one of the secret keys of these.
    Keys(Vec<x25519::Recipient>),
    /// Whoever knows this.
    Passphrase(SecretString),
}

impl std::fmt::Debug for Recipients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Recipients::Keys(keys) => write!(f, "{} keys", keys.len()),
            Recipients::Passphrase(_) => f.write_str("a passphrase"),
        }
    }
}

impl Recipients {
    /// Reads public keys: each of these texts is one (`age1...`), or names a file that has one a line.
    ///
    /// # Errors
    /// [`TraceError::Key`] when it is none, or there are more than 500.
    pub fn keys(texts: &[impl AsRef<Path>]) -> Result<Recipients> {
        let mut keys = Vec::new();
        for one in texts {
            let one = one.as_ref();
            let text = one.to_str().filter(|t| t.starts_with(PUBLIC));
            match text.map(str::parse) {
                Some(key) => keys.push(key.map_err(|why: &str| bad_key(one, why))?),
                None => keys.extend(lines::<x25519::Recipient>(one, "public key (age1...)")?),
            }
            if keys.len() > MAX_RECIPIENTS {
                let why = format!("a pack is encrypted to at most {MAX_RECIPIENTS} keys");
                return Err(bad_key(one, &why));
            }
        }
        Ok(Recipients::Keys(keys))
    }

    /// Whoever knows this passphrase.
    pub fn passphrase(text: String) -> Recipients {
        Recipients::Passphrase(text.into())
    }

    /// A writer whose `finish` has to be called at the end.
    pub(crate) fn encrypt<W: Write>(&self, out: W, path: &Path) -> Result<Sealing<W>> {
        let encryptor = match self {
            Recipients::Keys(keys) => {
                Encryptor::with_recipients(keys.iter().map(|k| k as &dyn Recipient))
            }
            Recipients::Passphrase(text) => {
                let mut recipient = scrypt::Recipient::new(text.clone());
                recipient.set_work_factor(WORK);
                Encryptor::with_recipients(std::iter::once(&recipient as &dyn Recipient))
            }
        };
        let encryptor = encryptor.map_err(|e| sealed(path, e.to_string()))?;
        encryptor.wrap_output(out).context("write", path)
    }
}

/// What is written here goes out encrypted.
pub(crate) type Sealing<W> = age::stream::StreamWriter<W>;

/// Asks for the passphrase of a pack; why there is none, else.
pub type Ask = fn(&Path) -> std::result::Result<String, String>;

/// How the user's packs are opened.
#[derive(Clone, Default)]
pub struct Keys {
    /// Files with secret keys (`AGE-SECRET-KEY-1...`), one a line.
    pub identities: Vec<PathBuf>,
    /// The passphrase, where it is known.
    pub passphrase: Option<String>,
    /// Asks for it, where it is not.
    pub ask: Option<Ask>,
}

/// Whether `path` is an age file, by its first bytes.
///
/// # Errors
/// When it can't be read.
pub fn is_encrypted(path: &Path) -> Result<bool> {
    let mut head = Vec::new();
    let file = File::open(path).context("open", path)?;
    let read = file.take(MAGIC.len() as u64).read_to_end(&mut head);
    read.context("read", path)?;
    Ok(head == MAGIC)
}

impl Keys {
    /// What is encrypted in this file. Damage shows as it is read, in errors of the reader; it ends where its writer has ended it.
    ///
    /// # Errors
    /// [`TraceError::Encrypted`] when none of the keys fits; [`TraceError::Corrupt`] when the header is damaged or hostile.
    pub fn decrypt(&self, path: &Path) -> Result<Opened> {
        let corrupt = |why: &str| TraceError::corrupt(path, why);
        let file = File::open(path).context("open", path)?;
        let mut head = Vec::new();
        let seen = (&file).take(MAX_HEADER).read_to_end(&mut head);
        seen.context("read", path)?;
        if !head.windows(HEADER_END.len()).any(|w| w == HEADER_END) {
            return Err(corrupt("the header of its encryption has no end"));
        }
        (&file).rewind().context("read", path)?;
        let decryptor = Decryptor::new_buffered(BufReader::new(file));
        let decryptor = decryptor.map_err(|e| self.told(path, e))?;
        let identities: Vec<Box<dyn Identity>> = match decryptor.is_scrypt() {
            true => {
                let text = match (&self.passphrase, self.ask) {
                    (Some(text), _) => text.clone(),
                    (None, Some(ask)) => ask(path).map_err(|why| sealed(path, why))?,
                    (None, None) => {
                        return Err(sealed(
                            path,
                            "it wants a passphrase: REPRISE_PASSPHRASE may have it",
                        ))
                    }
                };
                let mut identity = scrypt::Identity::new(text.into());
                identity.set_max_work_factor(MAX_WORK);
                vec![Box::new(identity)]
            }
            false if self.identities.is_empty() => {
                let why = "it is encrypted to a key; say where yours is by --identity FILE or by REPRISE_IDENTITY";
                return Err(sealed(path, why));
            }
            false => {
                let mut all: Vec<Box<dyn Identity>> = Vec::new();
                for file in &self.identities {
                    let keys = lines::<x25519::Identity>(file, "secret key (AGE-SECRET-KEY-1...)")?;
                    all.extend(keys.into_iter().map(|k| Box::new(k) as Box<dyn Identity>));
                }
                all
            }
        };
        let opened = decryptor.decrypt(identities.iter().map(|i| &**i));
        opened.map(Opened).map_err(|e| self.told(path, e))
    }

    fn told(&self, path: &Path, error: DecryptError) -> TraceError {
        match error {
            DecryptError::NoMatchingKeys => {
                let names: Vec<_> = self
                    .identities
                    .iter()
                    .map(|p| p.display().to_string())
                    .collect();
                let names = names.join(", ");
                sealed(
                    path,
                    format!("no key in {names} fits: it is for others, or damaged"),
                )
            }
            DecryptError::DecryptionFailed | DecryptError::KeyDecryptionFailed => {
                sealed(path, "the passphrase is wrong, or the file is damaged")
            }
            DecryptError::ExcessiveWork { required, .. } => sealed(
                path,
                format!(
                    "its passphrase costs 2^{required} rounds of scrypt, the limit is 2^{MAX_WORK}"
                ),
            ),
            DecryptError::InvalidHeader | DecryptError::InvalidMac => {
                TraceError::corrupt(path, "the header of its encryption is not as it was made")
            }
            DecryptError::UnknownFormat => {
                TraceError::corrupt(path, "its encryption is of another kind")
            }
            DecryptError::Io(e) if e.kind() == ErrorKind::UnexpectedEof => {
                TraceError::corrupt(path, "it ends within the header of its encryption")
            }
            DecryptError::Io(e) => TraceError::io("read", path, e),
        }
    }
}

/// What was encrypted.
pub struct Opened(StreamReader<BufReader<File>>);

impl Read for Opened {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|e| match e.kind() {
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                io::Error::new(e.kind(), "it was changed or cut off after it was encrypted")
            }
            _ => e,
        })
    }
}

fn sealed(path: &Path, why: impl Into<String>) -> TraceError {
    TraceError::Encrypted {
        path: path.into(),
        why: why.into(),
    }
}

fn bad_key(path: &Path, why: &str) -> TraceError {
    TraceError::Key {
        path: path.into(),
        why: why.into(),
    }
}

/// The keys in a file: one a line, between empty lines and comments.
fn lines<K: std::str::FromStr>(path: &Path, what: &str) -> Result<Vec<K>> {
    let file = File::open(path).map_err(|e| bad_key(path, &e.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_KEYS + 1).read_to_end(&mut bytes);
    read.map_err(|e| bad_key(path, &e.to_string()))?;
    if bytes.len() as u64 > MAX_KEYS {
        return Err(bad_key(path, "it is too large to be a file of keys"));
    }
    if bytes.starts_with(MAGIC) {
        let why = "it is encrypted itself; decrypt it first, with `age -d`";
        return Err(bad_key(path, why));
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut keys = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let key = line.parse();
        let why = || format!("line {} is no {what} of age's", number + 1);
        keys.push(key.map_err(|_| bad_key(path, &why()))?);
    }
    match keys.is_empty() {
        true => Err(bad_key(path, &format!("there is no {what} of age's in it"))),
        false => Ok(keys),
    }
}
