//! What the events up to some place tell of the program's files and code: under which names it mapped files, and which code the runtime has
//! rewritten. A debugger wants to know that of all events; where the first ones were forgotten, the trace's [`beginning`](crate::beginning)
//! says what they told.

use crate::{ByteString, ContentHash};
use reprise_abi::effect::Effect;
use reprise_abi::event::{patch_form, Event, Kind, Tag, AMONG_THREADS};
use reprise_abi::layout::PAGE;
use reprise_abi::syscalls;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Most descriptors whose files' names are remembered.
const MAX_NAMES: usize = 1 << 16;

/// A stretch of code that the runtime rewrites.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rewritten {
    /// At which event.
    pub event: u64,
    /// Its first byte.
    pub at: u64,
    /// Its length.
    pub len: u64,
}

/// What is known.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Known {
    /// Names of the files that were mapped, with what the trace keeps of them.
    pub files: BTreeMap<Vec<u8>, ContentHash>,
    /// Names of files that were mapped in parts, with the numbers of the copies that have these.
    pub parts: BTreeMap<Vec<u8>, u64>,
    /// Memory that a child gets differs from the parent's in more than what changes later (MADV_WIPEONFORK).
    pub forks_differ: bool,
    /// Code that was rewritten, in the order of the events.
    pub rewritten: Vec<Rewritten>,
    stub_pages: BTreeSet<u64>,
    /// Names of files that are open, by descriptor.
    names: HashMap<u64, Vec<u8>>,
}

/// As it is in a trace.
#[derive(Serialize, Deserialize)]
struct Stored {
    files: Vec<(ByteString, ContentHash)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<(ByteString, u64)>,
    forks_differ: bool,
    rewritten: Vec<Rewritten>,
    stub_pages: Vec<u64>,
    names: Vec<(u64, ByteString)>,
}

impl From<Stored> for Known {
    fn from(s: Stored) -> Known {
        Known {
            files: s.files.into_iter().map(|(n, h)| (n.0, h)).collect(),
            parts: s.parts.into_iter().map(|(n, p)| (n.0, p)).collect(),
            forks_differ: s.forks_differ,
            rewritten: s.rewritten,
            stub_pages: s.stub_pages.into_iter().collect(),
            names: s.names.into_iter().map(|(fd, n)| (fd, n.0)).collect(),
        }
    }
}

impl From<Known> for Stored {
    fn from(k: Known) -> Stored {
        Stored {
            files: k
                .files
                .into_iter()
                .map(|(n, h)| (ByteString(n), h))
                .collect(),
            parts: k
                .parts
                .into_iter()
                .map(|(n, p)| (ByteString(n), p))
                .collect(),
            forks_differ: k.forks_differ,
            rewritten: k.rewritten,
            stub_pages: k.stub_pages.into_iter().collect(),
            names: k
                .names
                .into_iter()
                .map(|(fd, n)| (fd, ByteString(n)))
                .collect(),
        }
    }
}

impl Known {
    /// Does an event of this kind, and with this result, tell anything?
    pub fn wants(kind: Option<Kind>, result: i64) -> bool {
        match kind {
            Some(Kind::Patch) => true,
            Some(Kind::Syscall | Kind::Exit) => result >= 0,
            _ => false,
        }
    }

    /// What event `number` tells.
    pub fn note(&mut self, number: u64, e: &Event<'_>) {
        match e.kind {
            Kind::Patch => self.note_patch(number, e),
            Kind::Syscall | Kind::Exit if e.header.value >= 0 => self.note_call(e),
            _ => {}
        }
    }

    fn note_call(&mut self, e: &Event<'_>) {
        match syscalls::effect(e.header.detail.into()) {
            Effect::OpensFile(_) => {
                let fd = e.header.value as u64;
                let path = e.sections().find(|s| s.tag == Tag::Path);
                let room = self.names.len() < MAX_NAMES || self.names.contains_key(&fd);
                if let Some(path) = path.filter(|_| room) {
                    self.names.insert(fd, path.bytes.to_vec());
                }
            }
            Effect::Advises if e.arg(2) == libc::MADV_WIPEONFORK as u64 => self.forks_differ = true,
            Effect::Maps => {
                let hash = e.sections().find(|s| s.tag == Tag::File);
                let hash = hash.and_then(|s| s.bytes.try_into().ok()).map(ContentHash);
                if let (Some(name), Some(hash)) = (self.names.get(&e.arg(4)), hash) {
                    self.files.insert(name.clone(), hash);
                }
                let part = crate::inputs::mapped(e).next();
                if let (Some(name), Some(part)) = (self.names.get(&e.arg(4)), part) {
                    self.parts.insert(name.clone(), part.file());
                }
            }
            _ => {}
        }
    }

    fn note_patch(&mut self, event: u64, e: &Event<'_>) {
        let (site, stub) = (e.arg(0), e.arg(1));
        let (at, len) = match e.header.detail & !AMONG_THREADS {
            patch_form::BEFORE => (site.wrapping_sub(5), 5),
            patch_form::BEFORE_LONG => (site.wrapping_sub(7), 7),
            patch_form::AFTER => (site, 8),
            patch_form::RESOLVER => (site, 5),
            _ => return,
        };
        self.rewritten.push(Rewritten { event, at, len });
        self.stub_pages.insert(stub & !(PAGE - 1));
    }

    /// Is this address in a stub of a rewritten system call site?
    pub fn is_stub(&self, pc: u64) -> bool {
        self.stub_pages.contains(&(pc & !(PAGE - 1)))
    }

    /// Does the runtime rewrite some of this code?
    pub fn rewrites(&self, stretch: &Range<u64>) -> bool {
        let overlaps =
            |r: &Rewritten| r.at < stretch.end && stretch.start < r.at.saturating_add(r.len);
        self.rewritten.iter().any(overlaps)
    }

    /// Is this byte inside of a rewritten stretch, but not its first, when `events` events have happened?
    pub fn is_inside_rewritten(&self, at: u64, events: u64) -> bool {
        let hides = |r: &Rewritten| r.event < events && at > r.at && at - r.at < r.len;
        self.rewritten.iter().any(hides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reprise_abi::event::{EventHeader, HEADER_LEN};

    #[test]
    fn a_trace_keeps_what_is_known() {
        let mut known = Known::default();
        let header = EventHeader {
            len: HEADER_LEN as u32 + 16,
            kind: Kind::Patch as u8,
            detail: patch_form::AFTER,
            nargs: 2,
            ..Default::default()
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend([0x5000u64, 0x7010].map(u64::to_le_bytes).concat());
        known.note(7, &Event::parse(&bytes).expect("an event"));
        known.names.insert(3, b"/lib/\xff".to_vec());
        known
            .files
            .insert(b"/lib/\xfe".to_vec(), ContentHash([5; 16]));
        known.forks_differ = true;
        let json = serde_json::to_string(&known).expect("JSON");
        let read: Known = serde_json::from_str(&json).expect("the same");
        assert_eq!(read, known);
        assert!(read.is_stub(0x7fff) && !read.is_stub(0x8000));
        assert!(read.is_inside_rewritten(0x5001, 8) && !read.is_inside_rewritten(0x5001, 7));
        assert!(read.rewrites(&(0x5007..0x5008)) && !read.rewrites(&(0x5008..0x5009)));
    }
}
