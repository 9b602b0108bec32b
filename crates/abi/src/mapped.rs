//! Mappings by reference: the event of mmap(2) of a large file says which range of which copy ([`crate::inputs`]) the mapping shows, in the place of the
//! hash of the file's whole content. Nobody has read these bytes yet, so there is no hash of them.

use crate::inputs::Reference;
use crate::syscalls::nr;

/// Can the event of this call say what a mapping shows of a copy?
pub fn can_map(number: u64) -> bool {
    matches!(number, nr::MMAP | nr::MREMAP)
}

/// Files that are shorter are kept whole: that takes a few milliseconds once, and the store has them from then on.
pub const LEAST_MAPPED: u64 = 8 << 20;

/// How an ELF file begins: a debugger wants all of a program or a library, so they are kept whole.
pub const ELF_MAGIC: [u8; 4] = *b"\x7fELF";

/// In the upper word of a name: the lower one is the number of a copy that has parts of the file.
const COPY: u64 = u64::from_le_bytes(*b"reprise\x01");
/// The same, where the file was kept whole since: nothing more of it is mapped by reference.
const ENDED: u64 = u64::from_le_bytes(*b"reprise\x02");

/// What stands for copy `number` where the hash of a content can stand.
pub fn name_of(number: u64) -> [u64; 2] {
    [number, COPY]
}

/// The number of the copy that a name stands for; none when it is the hash of a content.
pub fn copy_of(name: [u64; 2]) -> Option<u64> {
    matches!(name[1], COPY | ENDED).then_some(name[0])
}

/// The name of the same copy, from which nothing more is mapped; that of a content stays as it is.
pub fn ended(name: [u64; 2]) -> [u64; 2] {
    copy_of(name).map_or(name, |number| [number, ENDED])
}

/// From the bytes of a section [`Tag::Mapped`](crate::event::Tag::Mapped); none when they are none, or lead beyond all files.
pub fn parse(bytes: &[u8]) -> Option<Reference> {
    Reference::of_bytes(bytes).filter(|it| it.file() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::INEXACT;

    #[test]
    fn names_are_told_from_hashes() {
        assert_eq!(copy_of(name_of(7)), Some(7));
        assert_eq!(copy_of(ended(name_of(7))), Some(7));
        assert_ne!(ended(name_of(7)), name_of(7));
        for hash in [[0, 0], [7, 0], [u64::MAX, u64::MAX]] {
            assert_eq!(copy_of(hash), None);
            assert_eq!(ended(hash), hash);
        }
    }

    #[test]
    fn ranges_of_files() {
        let of = |words: [u64; 4]| {
            let bytes: std::vec::Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            parse(&bytes)
        };
        // As long as files can be, other than what is read at once.
        let it = of([3 | INEXACT, 4096, 1 << 40, 0]).expect("a range");
        assert_eq!(
            (it.file(), it.is_inexact(), it.offset, it.len),
            (3, true, 4096, 1 << 40)
        );
        assert_eq!(of([0, 4096, 4096, 0]), None);
        assert_eq!(of([3, u64::MAX, 4096, 0]), None);
        assert_eq!(of([3, i64::MAX as u64, 1, 0]), None);
        assert_eq!(parse(&[0; 31]), None);
    }
}
