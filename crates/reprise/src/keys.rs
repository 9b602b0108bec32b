//! The keys of packed traces that are encrypted: secret keys in files, and passphrases, of the environment or from the terminal.

use reprise_trace::catalog;
use reprise_trace::encrypted::{Keys, Recipients};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Names the file with the user's secret keys, where no option does.
const IDENTITY_VARIABLE: &str = "REPRISE_IDENTITY";
/// Has the passphrase, where nobody is to be asked.
const PASSPHRASE_VARIABLE: &str = "REPRISE_PASSPHRASE";

/// From now on encrypted packs are opened with the keys in these files, else in that of the environment. The user is asked for a passphrase where standard
/// input is a terminal: a server, and what it runs, may have a terminal, too, but it is somebody else's.
pub fn tell(mut identities: Vec<PathBuf>) {
    if identities.is_empty() {
        let named = std::env::var_os(IDENTITY_VARIABLE).filter(|v| !v.is_empty());
        identities.extend(named.map(PathBuf::from));
    }
    catalog::open_with(Keys {
        identities,
        passphrase: given(),
        ask: std::io::stdin().is_terminal().then_some(ask),
    });
}

/// A passphrase for a new pack: that of the environment, or one that is typed twice.
///
/// # Errors
/// One line that says why there is none.
pub fn new_passphrase(pack: &Path) -> Result<Recipients, String> {
    let text = match given() {
        Some(text) => text,
        None => {
            let text = ask(pack)?;
            match prompted("Once more: ")? == text {
                true => text,
                false => return Err("the passphrase was typed in two ways".into()),
            }
        }
    };
    match text.is_empty() {
        true => Err("an empty passphrase keeps nobody out".into()),
        false => Ok(Recipients::passphrase(text)),
    }
}

/// Set, but empty, it is none: as most have it who unset variables in CI.
fn given() -> Option<String> {
    let text = std::env::var(PASSPHRASE_VARIABLE).ok();
    text.filter(|t| !t.is_empty())
}

fn ask(pack: &Path) -> Result<String, String> {
    prompted(&format!("Passphrase of {}: ", pack.display()))
}

fn prompted(prompt: &str) -> Result<String, String> {
    rpassword::prompt_password(prompt).map_err(|e| {
        format!("it wants a passphrase, and there is no terminal to ask for it ({e}): {PASSPHRASE_VARIABLE} may have it")
    })
}
