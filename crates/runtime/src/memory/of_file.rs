//! What a trace says of the file that a call mapped or changed.

use reprise_abi::event::Tag;

/// What an event says of a mapped file.
#[derive(Default)]
pub struct OfFile {
    /// The content's hash, or the name of a copy of parts ([`reprise_abi::mapped`]).
    pub hash: Option<[u8; 16]>,
    /// How long the file is of which there is a copy of parts.
    pub len: u64,
    /// Where the call wrote.
    pub offset: u64,
    /// The descriptor that the call told the program of.
    pub descriptor: Option<u64>,
    /// What a call that failed has done nevertheless ([`crate::memory::partly`]).
    pub partly: u64,
    /// Nobody knows where in a rebuilt program an output belongs.
    pub lost: bool,
}

/// What the event of a call says when the call wrote to a mapped file.
pub struct Note {
    /// The file's number.
    pub number: u32,
    /// [`Tag::Offset`], or [`Tag::File`] with the content's hash.
    pub tag: Tag,
    /// The section's address: offset in the file, or its length.
    pub address: u64,
    /// The content's hash.
    pub hash: [u8; 16],
}

impl Note {
    /// Bytes in the section.
    pub fn section_bytes(&self) -> usize {
        if self.tag == Tag::File {
            16
        } else {
            0
        }
    }
}
