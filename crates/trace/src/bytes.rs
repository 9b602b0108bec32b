//! Strings of the system (arguments, environment, paths) in JSON, without loss.
//!
//! Valid UTF-8 is a JSON string, as people expect; anything else is `{"hex": "..."}`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Bytes that are usually, but not always, text.
#[derive(Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct ByteString(pub Vec<u8>);

impl ByteString {
    /// As a string of the system.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// As a path.
    pub fn as_path(&self) -> &Path {
        Path::new(self.as_os_str())
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<T: AsRef<OsStr> + ?Sized> From<&T> for ByteString {
    fn from(s: &T) -> ByteString {
        ByteString(s.as_ref().as_bytes().to_vec())
    }
}

impl From<OsString> for ByteString {
    fn from(s: OsString) -> ByteString {
        ByteString(s.into_vec())
    }
}

impl From<Vec<u8>> for ByteString {
    fn from(bytes: Vec<u8>) -> ByteString {
        ByteString(bytes)
    }
}

impl std::fmt::Display for ByteString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::fmt::Debug for ByteString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Hex { hex: String },
}

impl Serialize for ByteString {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => s.serialize_str(text),
            Err(_) => {
                let hex = self.0.iter().map(|b| format!("{b:02x}")).collect();
                Form::Hex { hex }.serialize(s)
            }
        }
    }
}

impl<'de> Deserialize<'de> for ByteString {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<ByteString, D::Error> {
        let hex = match Form::deserialize(d)? {
            Form::Text(text) => return Ok(ByteString(text.into_bytes())),
            Form::Hex { hex } => hex,
        };
        let digits: Option<Vec<u8>> = hex
            .chars()
            .map(|c| c.to_digit(16).map(|d| d as u8))
            .collect();
        match digits {
            Some(d) if d.len() % 2 == 0 => {
                Ok(ByteString(d.chunks(2).map(|p| p[0] << 4 | p[1]).collect()))
            }
            _ => Err(serde::de::Error::custom("odd or foreign hex digits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_lost(bytes: Vec<u8>) {
            let json = serde_json::to_string(&ByteString(bytes.clone())).unwrap();
            prop_assert_eq!(serde_json::from_str::<ByteString>(&json).unwrap().0, bytes);
        }
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(
            serde_json::to_string(&ByteString::from("ls -l ü")).unwrap(),
            "\"ls -l ü\""
        );
        assert_eq!(
            serde_json::to_string(&ByteString(vec![0xff, 1])).unwrap(),
            "{\"hex\":\"ff01\"}"
        );
        assert!(serde_json::from_str::<ByteString>("{\"hex\":\"f\"}").is_err());
        assert!(serde_json::from_str::<ByteString>("{\"hex\":\"zz\"}").is_err());
    }
}
