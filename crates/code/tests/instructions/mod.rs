//! Instructions for tests of decoders: all that this process can run, and ones that nobody has written.

use std::os::unix::fs::FileExt;

/// Longest instruction in bytes.
const LONGEST: usize = 15;

/// All code that is mapped into this process: of this test, of the C library, of the dynamic linker; whose, and the bytes.
pub fn code_of_this_process() -> Vec<(String, Vec<u8>)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let is_code = |line: &&str| line.contains(" r-xp ") && line.contains(" /");
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        let (len, offset) = (hex(end)? - hex(start)?, hex(words.nth(1)?)?);
        let path = words.nth(2)?;
        let mut code = vec![0; len as usize];
        let file = std::fs::File::open(path).ok()?;
        let n = file.read_at(&mut code, offset).ok()?;
        code.truncate(n);
        Some((path.to_string(), code))
    };
    let all: Vec<_> = maps.lines().filter(is_code).filter_map(read).collect();
    let of_libc = all.iter().any(|(path, _)| path.contains("libc.so"));
    assert!(of_libc && all.len() >= 3, "too little code");
    all
}

/// Numbers without a pattern, the same ones each time.
pub fn numbers() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Bytes that mostly are an instruction: prefixes as they come, any map of opcodes, any operands.
pub fn likely(next: &mut impl FnMut() -> u64) -> [u8; LONGEST] {
    const PREFIXES: [u8; 11] = [
        0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3,
    ];
    /// How many of them, by three bits.
    const HOW_MANY: [usize; 8] = [0, 0, 0, 1, 1, 2, 3, 5];
    let mut head = Vec::new();
    let any = next().to_le_bytes();
    for n in &any[..HOW_MANY[any[7] as usize & 7]] {
        head.push(PREFIXES[*n as usize % PREFIXES.len()]);
    }
    if any[6] & 1 != 0 {
        // REX
        head.push(0x40 | any[6] >> 4);
    }
    let any = next().to_le_bytes();
    match any[0] % 8 {
        0 | 1 => {}
        2 | 3 => head.push(0x0f),
        4 => head.extend([0x0f, [0x38, 0x3a][any[1] as usize & 1]]),
        // VEX of two and three bytes, EVEX
        5 => head.extend([0xc5, any[1]]),
        6 => head.extend([0xc4, any[1] & 0xe3, any[2]]),
        _ => head.extend([0x62, any[1] & 0xf7, any[2] | 4, any[3]]),
    }
    let mut code = [0; LONGEST];
    let noise = [next(), next()].map(u64::to_le_bytes).concat();
    code.copy_from_slice(&noise[..LONGEST]);
    code[..head.len()].copy_from_slice(&head);
    code
}
