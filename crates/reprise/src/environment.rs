//! What a trace says of the program's environment. Variables whose names look like secrets are in the program's memory, and so in the trace's image; but
//! where the environment is only told, in the manifest, their values are cut: that is what people look at, print and paste.

use clap::Args;
use reprise_trace::ByteString;

/// Names that look like secrets.
const USUAL: &[&str] = &[
    "*TOKEN*",
    "*SECRET*",
    "*PASSW*",
    "*PASSPHRASE*",
    "*CREDENTIAL*",
    "*PRIVATE*",
    "*COOKIE*",
    "*APIKEY*",
    "*_KEY",
    "*_AUTH",
    "*_PAT",
    "*_DSN",
    "*DATABASE_URL",
];

/// Stands in the place of a value.
pub const CUT: &str = "[cut]";

/// What `record` is told of it.
#[derive(Args, Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvArgs {
    /// Cut the values of these variables from the manifest, too (NAME, NAME*, *NAME, *NAME*; several with commas). Those that look like secrets always are
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub env_deny: Vec<String>,

    /// Leave the values of these variables in the manifest, whatever they look like
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    pub env_allow: Vec<String>,
}

impl EnvArgs {
    /// The environment as a manifest may have it; of `NAME=value`.
    pub fn cut(&self, env: Vec<ByteString>) -> Vec<ByteString> {
        let cut = |entry: ByteString| {
            let text = entry.to_string();
            let name = text.split('=').next().unwrap_or_default();
            match self.is_secret(name) {
                true => ByteString::from(std::ffi::OsStr::new(&format!("{name}={CUT}"))),
                false => entry,
            }
        };
        env.into_iter().map(cut).collect()
    }

    fn is_secret(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|p| matches(p, name));
        let looks_like_one = USUAL.iter().any(|p| matches(p, name));
        (looks_like_one || any(&self.env_deny)) && !any(&self.env_allow)
    }
}

/// Is it a name of this pattern? Case does not matter.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_uppercase(), name.to_ascii_uppercase());
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(""), _) => true,
        (Some(rest), Some(_)) => name.contains(rest.trim_end_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(begin)) => name.starts_with(begin),
        (None, None) => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched() {
        for (pattern, name, expected) in [
            ("PATH", "PATH", true),
            ("PATH", "PATHS", false),
            ("path", "PATH", true),
            ("AWS*", "AWS_REGION", true),
            ("AWS*", "MY_AWS", false),
            ("*_KEY", "API_KEY", true),
            ("*_KEY", "KEYBOARD", false),
            ("*TOKEN*", "MY_TOKEN_2", true),
            ("*", "ANY", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn values_are_cut() {
        let entries = [
            "HOME=/root",
            "GITHUB_TOKEN=abc",
            "db_password=x=y",
            "MINE=1",
            "ODD",
        ];
        let env = || {
            let entries = entries
                .iter()
                .map(|e| ByteString::from(std::ffi::OsStr::new(e)));
            entries.collect::<Vec<_>>()
        };
        let told = |args: &EnvArgs| {
            let cut = args.cut(env());
            cut.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let usual = told(&EnvArgs::default());
        assert_eq!(
            usual,
            [
                "HOME=/root",
                "GITHUB_TOKEN=[cut]",
                "db_password=[cut]",
                "MINE=1",
                "ODD"
            ]
        );
        let other = told(&EnvArgs {
            env_deny: vec!["MI*".into()],
            env_allow: vec!["github_token".into()],
        });
        assert_eq!(
            other,
            [
                "HOME=/root",
                "GITHUB_TOKEN=abc",
                "db_password=[cut]",
                "MINE=[cut]",
                "ODD"
            ]
        );
    }
}
