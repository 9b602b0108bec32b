//! What the fuzz targets of `fuzz/` do, with a few thousand inputs and no fuzzer: they build, and they hold. (What gdb sends is tried in `src/fuzzed.rs`; streams,
//! images, packs and manifests with changes also in `crates/trace/tests/hostile.rs`, names in `crates/place/src/name.rs`.)

#[path = "../../../fuzz/src/bodies/mod.rs"]
mod bodies;
/// An allocation that is too large ends the test.
#[path = "../../../fuzz/src/limit.rs"]
mod limit;

/// Numbers without a pattern.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Changes a few words, bytes or bits, mostly near the beginning, or cuts.
    fn change(&mut self, bytes: &mut Vec<u8>) {
        const NEAR: usize = 512;
        const WORDS: [u64; 8] = [
            0,
            1,
            8,
            4096,
            u32::MAX as u64,
            i64::MAX as u64,
            1 << 63,
            u64::MAX,
        ];
        for _ in 0..1 + self.below(4) {
            let len = match self.below(4) {
                0 => bytes.len(),
                _ => bytes.len().min(NEAR),
            };
            let at = self.below(len);
            match self.below(8) {
                0 => bytes.truncate(at),
                1 | 2 => bytes
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|b| *b ^= 1 << (at % 8)),
                3 | 4 => {
                    let any = self.next() as u8;
                    bytes.iter_mut().skip(at).take(1).for_each(|b| *b = any);
                }
                how => {
                    let word = match how {
                        5 => self.next(),
                        _ => WORDS[self.below(WORDS.len())],
                    };
                    let place = bytes.iter_mut().skip(at & !7).take(8);
                    place.zip(word.to_le_bytes()).for_each(|(to, b)| *to = b);
                }
            }
        }
    }
}

/// Changes `valid` so many times, and tries what comes of it.
fn try_changed(target: fn(&[u8]), valid: &[u8], times: u32) {
    target(valid);
    let mut noise = Noise(valid.len() as u64 + 1);
    for _ in 0..times {
        let mut bytes = valid.to_vec();
        noise.change(&mut bytes);
        target(&bytes);
    }
}

#[test]
fn all_targets_hold() {
    let targets = [
        bodies::elf,
        bodies::entries,
        bodies::filters,
        bodies::lengths,
        bodies::manifest,
        bodies::names,
        bodies::pack,
        bodies::requests,
    ];
    for target in targets {
        target(b"");
        for how in 0..64 {
            let mut input = Noise(how + 1).bytes(40 * how as usize);
            input.insert(0, how as u8);
            target(&input);
        }
    }
}

#[test]
fn filters_that_are_nearly_right() {
    // A filter by number and argument: load, compare, give an errno, compare, kill, allow.
    let program: [u64; 7] = [
        0x20,
        39 << 32 | 0x0100_0015,
        0x5_0007 << 32 | 0x06,
        24 << 32 | 0x20,
        10 << 32 | 0x0100_0025,
        0x8000_0000 << 32 | 0x06,
        0x7fff_0000 << 32 | 0x06,
    ];
    let call = [0u8; 2 + 4 + 8 + 6 * 8];
    let program = program.iter().flat_map(|i| i.to_le_bytes());
    let valid: Vec<u8> = call.into_iter().chain(program).collect();
    try_changed(bodies::filters, &valid, 100_000);
}

/// The linker that all programs begin with.
fn linker() -> Vec<u8> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let mut paths = maps.lines().filter_map(|l| l.find('/').map(|at| &l[at..]));
    let path = paths.find(|p| p.contains("/ld-linux")).expect("a linker");
    std::fs::read(path).expect("its file")
}

#[test]
fn modules_that_are_nearly_right() {
    let file = linker();
    for at in [0, 1] {
        // Somewhere in its code.
        let head = [1, at, 0, 0x20, 1, 0];
        try_changed(bodies::elf, &[&head[..], &file].concat(), 2000);
    }
    try_changed(bodies::elf, &[&[2][..], &file].concat(), 500);
    let head = [3, 0, 0x20, 1, 0];
    try_changed(bodies::elf, &[&head[..], &file].concat(), 100);
}

#[test]
fn code_that_is_nearly_right() {
    let file = linker();
    // Somewhere in it is code.
    for code in file.chunks(4096).step_by(8) {
        try_changed(bodies::lengths, code, 20);
    }
}

#[test]
fn runtimes_that_are_nearly_right() {
    let valid = [&[0][..], reprise_launch::runtime::EMBEDDED].concat();
    try_changed(bodies::elf, &valid, 1000);
}

#[test]
fn checkpoints_that_are_nearly_right() {
    let table = br#"{"seal":0,"checkpoints":[{"event":0,"after":1,"end":0}]}"#;
    let registers = ["0"; 27].join(",");
    let index = format!(
        r#"{{"regions":[{{"start":4096,"len":8192,"prot":3,"flags":0,"content":{{"Bytes":{{"runs":[[4096,8192,0]]}}}},"name":"x"}}],"blob_len":8192,
        "block":65536,"blocks":[{{"at":0,"len":0,"hash":0}}],"moment":{{"event":0,"at_byte":0,"files":3,"copies":[{{"number":1,"len":5000,"descriptor":9}}],
        "threads":[{{"tid":1,"registers":[{registers}],"vectors":[],"mask":0,"clears":0,"signal_stack":[0,0,0]}}]}}}}"#
    );
    let head = [7, table.len() as u8, 0];
    let valid = [&head[..], table, index.as_bytes()].concat();
    try_changed(bodies::entries, &valid, 3000);
}
