//! Machine code of a stub, as it grows: the few instructions that stubs are made of.

/// Words in a stub's data page: registers that the stub uses itself, as the program has them, ...
pub(crate) const RAX: u64 = 0;
/// ... the flags, as `lahf` and `seto` store them, ...
pub(crate) const FLAGS: u64 = 8;
pub(crate) const RCX: u64 = 16;
pub(crate) const RDX: u64 = 24;
/// ... the registers that are looked for, ...
pub(crate) const WANTED: u64 = 32;
/// ... how many visits are to come, ...
pub(crate) const VISITS_LEFT: u64 = WANTED + 16 * 8;
/// ... the value of an expression, ...
pub(crate) const VALUE: u64 = VISITS_LEFT + 8;
/// ... and its stack.
pub(crate) const STACK: u64 = VALUE + 8;
/// `jmp rel32`.
pub(crate) const JMP: u8 = 0xe9;
/// Bytes of a jump.
pub(crate) const JUMP: usize = 5;
/// Second bytes of conditional jumps.
pub(crate) const IF_ZERO: u8 = 0x84;
pub(crate) const IF_NOT_ZERO: u8 = 0x85;

/// The arithmetic flags, of which [`Code::save`] keeps a copy.
const ARITHMETIC: u64 = 0x8d5;
const OVERFLOW: u64 = 0x800;

/// Code at `base`, and the data page that it uses.
pub(crate) struct Code {
    pub bytes: Vec<u8>,
    pub base: u64,
    pub data: u64,
}

impl Code {
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn here(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// An instruction with a register and a word of the data page.
    fn with_word(&mut self, opcode: u8, register: u8, word: u64) {
        let wide = 0x48 | (register >> 3) << 2;
        self.put(&[wide, opcode, (register & 7) << 3 | 5]);
        let from = self.here() + 4;
        self.put(&((self.data + word).wrapping_sub(from) as u32).to_le_bytes());
    }

    pub fn load(&mut self, register: u8, word: u64) {
        self.with_word(0x8b, register, word);
    }

    pub fn store(&mut self, register: u8, word: u64) {
        self.with_word(0x89, register, word);
    }

    pub fn compare(&mut self, register: u8, word: u64) {
        self.with_word(0x3b, register, word);
    }

    /// Loads a number into one of the first eight registers.
    pub fn constant(&mut self, register: u8, value: u64) {
        self.put(&[0x48, 0xb8 | register]);
        self.put(&value.to_le_bytes());
    }

    /// Takes one from a word of the data page.
    pub fn count_down(&mut self, word: u64) {
        self.with_word(0xff, 1, word);
    }

    /// A jump under a condition (the second byte of its opcode); where its distance is.
    pub fn branch(&mut self, condition: u8) -> usize {
        self.put(&[0x0f, condition, 0, 0, 0, 0]);
        self.bytes.len() - 4
    }

    /// A jump; where its distance is.
    pub fn jump(&mut self) -> usize {
        self.put(&[JMP, 0, 0, 0, 0]);
        self.bytes.len() - 4
    }

    /// These jumps lead here.
    pub fn land(&mut self, branches: &[usize]) {
        for at in branches {
            let distance = (self.bytes.len() - at - 4) as u32;
            self.bytes[*at..*at + 4].copy_from_slice(&distance.to_le_bytes());
        }
    }

    /// Makes rax, rcx, rdx and the arithmetic flags free to use.
    pub fn save(&mut self) {
        self.store(0, RAX);
        // lahf; seto al
        self.put(&[0x9f, 0x0f, 0x90, 0xc0]);
        self.store(0, FLAGS);
        self.store(1, RCX);
        self.store(2, RDX);
    }

    /// Makes them what they were.
    pub fn restore(&mut self) {
        self.load(1, RCX);
        self.load(2, RDX);
        self.load(0, FLAGS);
        // add al, 0x7f; sahf
        self.put(&[0x04, 0x7f, 0x9e]);
        self.load(0, RAX);
    }
}

/// The flags that the program had, of what a stub has stored and of what they are now.
pub(crate) fn saved_flags(stored: u64, now: u64) -> u64 {
    let overflow = if stored & 0xff == 0 { 0 } else { OVERFLOW };
    now & !ARITHMETIC | stored >> 8 & ARITHMETIC & !OVERFLOW | overflow
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_found_again() {
        // Carry and sign in ah, overflow in al; the direction flag is not kept.
        assert_eq!(saved_flags(0x8301, 0x0644), 0x0600 | 0x801 | 0x80);
        assert_eq!(saved_flags(0x0200, 0x0ac1), 0x0200);
    }
}
