//! Words out of a fuzzer's bytes. When they have run out, all is zero.

/// What is left of them.
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next bytes, at most so many.
    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let (now, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        now
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let now = self.take(N);
        let mut all = [0; N];
        all[..now.len()].copy_from_slice(now);
        all
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}
