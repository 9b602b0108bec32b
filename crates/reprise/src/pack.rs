//! `reprise pack`: one self-contained file, to be sent to someone else.

use crate::cli::PackArgs;
use crate::{environment, human, keys};
use anyhow::{anyhow, bail, Context};
use reprise_console::{say, tell};
use reprise_trace::encrypted::{self, Recipients};
use reprise_trace::pack::Packing;
use reprise_trace::redact::{self, Values};
use reprise_trace::{pack, signature, ByteString, Catalog, Manifest, CHECKPOINTS_FILE};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `reprise pack`
pub fn run(args: &PackArgs) -> anyhow::Result<()> {
    if let Some(file) = args.trace.as_deref().filter(|p| p.is_file()) {
        bail!(
            "{} is a file, perhaps packed already; name a trace that `reprise ls` lists",
            file.display()
        );
    }
    let dir = Catalog::from_env()?.resolve(args.trace.as_deref())?;
    let is_sealed = args.passphrase || !args.encrypt.is_empty();
    let usual = || usual_name(&dir, is_sealed);
    let file = args.output.clone().unwrap_or_else(usual);
    // What can be refused is refused before anything is made.
    let key = args.sign.as_deref().map(|path| {
        let signature = signature::path_of(&file);
        if signature.symlink_metadata().is_ok() {
            bail!(
                "{} exists already; name another place, or remove it first",
                signature.display()
            );
        }
        Ok(signature::secret_key(path, || ask_password(path))?)
    });
    let key = key.transpose()?;
    let recipients = recipients(args, &file)?;
    let packing = Packing {
        left_out: if args.no_checkpoints {
            &[CHECKPOINTS_FILE]
        } else {
            &[]
        },
        recipients: recipients.as_ref(),
    };
    let size = match args.redact.is_empty() {
        true => pack::pack_with(&dir, &file, &packing)?,
        false => pack_redacted(&dir, args, &file, &packing)?,
    };
    let signed = key.map(|key| signature::sign(&file, &key)).transpose()?;
    if !args.quiet {
        let (file, size) = (file.display(), human::size(size));
        tell!("packed into {file} ({size}); replay it with `reprise replay {file}`")?;
        match recipients {
            Some(Recipients::Passphrase(_)) => tell!("encrypted: it asks for the passphrase")?,
            Some(Recipients::Keys(_)) => {
                tell!("encrypted: --identity FILE, or REPRISE_IDENTITY, opens it")?;
            }
            None => {}
        }
        if let Some(signed) = signed {
            tell!(
                "signed in {}; send it along, and your public key by another way",
                signed.display()
            )?;
        }
    }
    Ok(())
}

/// For whom it is, unless it is for everybody.
fn recipients(args: &PackArgs, file: &Path) -> anyhow::Result<Option<Recipients>> {
    match (args.passphrase, args.encrypt.is_empty()) {
        (true, _) => match keys::new_passphrase(file) {
            Ok(recipients) => Ok(Some(recipients)),
            Err(why) => Err(anyhow!("can't encrypt {}: {why}", file.display())),
        },
        (false, false) => Ok(Some(Recipients::keys(&args.encrypt)?)),
        (false, true) => Ok(None),
    }
}

/// Packs what is left of a trace when values were taken out.
fn pack_redacted(
    dir: &Path,
    args: &PackArgs,
    file: &Path,
    packing: &Packing,
) -> anyhow::Result<u64> {
    let values = Values::new(values(dir, &args.redact)?)?;
    let beside = file
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let copy = tempfile::Builder::new()
        .prefix(".redacted-")
        .tempdir_in(beside);
    let copy = copy.with_context(|| format!("can't write in {}", beside.display()))?;
    let done = redact::redact(dir, &values, copy.path())?;
    let size = pack::pack_with(copy.path(), file, packing)?;
    match (args.quiet, done.places) {
        (_, 0) => say!("redacted: nothing: no such value stands in this trace"),
        (true, _) => {}
        (false, places) => tell!(
            "redacted: {} values, in {} places",
            done.values,
            human::count(places)
        )?,
    }
    Ok(size)
}

/// The values that are meant: texts themselves, and those of variables of the program's environment.
fn values(dir: &Path, wanted: &[OsString]) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut variables = redact::environments(dir)?;
    let mut cut = Vec::new();
    for entry in Manifest::read(dir)?.env {
        let mut parts = entry.as_bytes().splitn(2, |b| *b == b'=');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            continue;
        };
        let name = ByteString::from(name.to_vec());
        match value == environment::CUT.as_bytes() {
            true => cut.push(name),
            false => variables.push((name, value.to_vec())),
        }
    }
    let mut values = Vec::new();
    for one in wanted {
        let bytes = one.as_bytes();
        if let Some(text) = bytes.strip_prefix(b"=") {
            if text.len() < redact::LEAST {
                let least = redact::LEAST;
                bail!("a value of fewer than {least} bytes can't be redacted: it stands in many places by chance");
            }
            values.push(text.to_vec());
            continue;
        }
        let pattern = one.to_string_lossy();
        let is_meant = |name: &ByteString| environment::matches(&pattern, &name.to_string());
        let meant = variables.iter().filter(|(name, _)| is_meant(name));
        let meant: Vec<_> = meant.collect();
        let known = |name: &ByteString| meant.iter().any(|(n, _)| n == name);
        if let Some(name) = cut.iter().find(|name| is_meant(name) && !known(name)) {
            bail!("the value of {name} is not known: say it as =TEXT");
        }
        if meant.is_empty() {
            bail!(
                "the program had no {pattern} in its environment: a value itself is said as =TEXT"
            );
        }
        for (name, value) in meant {
            if (1..redact::LEAST).contains(&value.len()) {
                let least = redact::LEAST;
                bail!("the value of {name} has fewer than {least} bytes and can't be redacted: it stands in many places by chance");
            }
            values.extend((!value.is_empty()).then(|| value.clone()));
        }
    }
    if values.is_empty() {
        bail!("there is nothing to redact: all variables of these names were empty");
    }
    Ok(values)
}

/// The password of a secret key, from the terminal.
fn ask_password(key: &Path) -> Result<String, String> {
    let prompt = format!("Password of {}: ", key.display());
    rpassword::prompt_password(prompt).map_err(|e| {
        format!("it is protected by a password, and there is no terminal to ask for it ({e})")
    })
}

/// `NAME.reprise`, or `NAME.reprise.age`, in the working directory.
fn usual_name(dir: &Path, is_sealed: bool) -> PathBuf {
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.into());
    let mut name = whole
        .file_name()
        .map_or_else(|| OsString::from("trace"), OsString::from);
    name.push(".");
    name.push(pack::EXTENSION);
    if is_sealed {
        name.push(".");
        name.push(encrypted::EXTENSION);
    }
    name.into()
}
