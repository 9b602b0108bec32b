//! The processor's features by name: what a recorded program was shown, what this machine lacks of it, and how a recording is
//! limited to what machines have in common (the levels of the x86-64 psABI).

use crate::cpu::{Processor, ANY};
use reprise_abi::session::CpuidLeaf;

/// Where a feature's bit is: leaf, subleaf, register (0 to 3: eax to edx), bit, name.
type Feature = (u32, u32, usize, u32, &'static str);

/// Features that a program may use once it has seen them. (What is masked from every program is not in the list.)
const FEATURES: &[Feature] = &[
    (1, ANY, 2, 0, "SSE3"),
    (1, ANY, 2, 1, "PCLMULQDQ"),
    (1, ANY, 2, 9, "SSSE3"),
    (1, ANY, 2, 12, "FMA"),
    (1, ANY, 2, 13, "CMPXCHG16B"),
    (1, ANY, 2, 19, "SSE4.1"),
    (1, ANY, 2, 20, "SSE4.2"),
    (1, ANY, 2, 22, "MOVBE"),
    (1, ANY, 2, 23, "POPCNT"),
    (1, ANY, 2, 25, "AES"),
    (1, ANY, 2, 26, "XSAVE"),
    (1, ANY, 2, 28, "AVX"),
    (1, ANY, 2, 29, "F16C"),
    (7, 0, 1, 3, "BMI1"),
    (7, 0, 1, 5, "AVX2"),
    (7, 0, 1, 8, "BMI2"),
    (7, 0, 1, 16, "AVX512F"),
    (7, 0, 1, 17, "AVX512DQ"),
    (7, 0, 1, 19, "ADX"),
    (7, 0, 1, 21, "AVX512_IFMA"),
    (7, 0, 1, 23, "CLFLUSHOPT"),
    (7, 0, 1, 24, "CLWB"),
    (7, 0, 1, 26, "AVX512PF"),
    (7, 0, 1, 27, "AVX512ER"),
    (7, 0, 1, 28, "AVX512CD"),
    (7, 0, 1, 29, "SHA"),
    (7, 0, 1, 30, "AVX512BW"),
    (7, 0, 1, 31, "AVX512VL"),
    (7, 0, 2, 1, "AVX512_VBMI"),
    (7, 0, 2, 6, "AVX512_VBMI2"),
    (7, 0, 2, 8, "GFNI"),
    (7, 0, 2, 9, "VAES"),
    (7, 0, 2, 10, "VPCLMULQDQ"),
    (7, 0, 2, 11, "AVX512_VNNI"),
    (7, 0, 2, 12, "AVX512_BITALG"),
    (7, 0, 2, 14, "AVX512_VPOPCNTDQ"),
    (7, 0, 2, 25, "CLDEMOTE"),
    (7, 0, 2, 27, "MOVDIRI"),
    (7, 0, 2, 28, "MOVDIR64B"),
    (7, 0, 3, 2, "AVX512_4VNNIW"),
    (7, 0, 3, 3, "AVX512_4FMAPS"),
    (7, 0, 3, 8, "AVX512_VP2INTERSECT"),
    (7, 0, 3, 14, "SERIALIZE"),
    (7, 0, 3, 23, "AVX512_FP16"),
    (7, 1, 0, 0, "SHA512"),
    (7, 1, 0, 1, "SM3"),
    (7, 1, 0, 2, "SM4"),
    (7, 1, 0, 4, "AVX_VNNI"),
    (7, 1, 0, 5, "AVX512_BF16"),
    (7, 1, 0, 23, "AVX_IFMA"),
    (7, 1, 3, 4, "AVX_VNNI_INT8"),
    (7, 1, 3, 5, "AVX_NE_CONVERT"),
    (7, 1, 3, 10, "AVX_VNNI_INT16"),
    (7, 1, 3, 19, "AVX10"),
    (0xd, 1, 0, 0, "XSAVEOPT"),
    (0xd, 1, 0, 1, "XSAVEC"),
    (0x8000_0001, ANY, 2, 0, "LAHF"),
    (0x8000_0001, ANY, 2, 5, "LZCNT"),
    (0x8000_0001, ANY, 2, 6, "SSE4A"),
    (0x8000_0001, ANY, 2, 8, "PREFETCHW"),
    (0x8000_0001, ANY, 2, 11, "XOP"),
    (0x8000_0001, ANY, 2, 16, "FMA4"),
    (0x8000_0001, ANY, 2, 21, "TBM"),
    (0x8000_0001, ANY, 3, 27, "RDTSCP"),
];

/// What XCR0's bits stand for.
const COMPONENTS: [(u32, &str); 9] = [
    (0, "x87 state"),
    (1, "SSE state"),
    (2, "AVX state"),
    (5, "AVX-512 mask state"),
    (6, "AVX-512 upper halves"),
    (7, "AVX-512 upper registers"),
    (9, "protection keys"),
    (17, "AMX configuration"),
    (18, "AMX tiles"),
];

/// What each level adds to the one before it.
const LEVELS: [&[&str]; 4] = [
    &[],
    &[
        "CMPXCHG16B",
        "LAHF",
        "POPCNT",
        "SSE3",
        "SSE4.1",
        "SSE4.2",
        "SSSE3",
    ],
    &[
        "AVX", "AVX2", "BMI1", "BMI2", "F16C", "FMA", "LZCNT", "MOVBE", "XSAVE",
    ],
    &["AVX512F", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512VL"],
];

/// A level to which a recording can be limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// x86-64-v2: no vector state but SSE, no XSAVE. Machines since about 2009.
    V2,
    /// x86-64-v3: AVX2 and its kin. Machines since about 2013. A program that uses XSAVE (glibc's lazy binding does) leaves
    /// on its stack what XCR0 has it write: such traces replay where XCR0 is the same.
    V3,
}

fn register(leaves: &[CpuidLeaf], leaf: u32, subleaf: u32, register: usize) -> u32 {
    leaves
        .iter()
        .find(|l| l.leaf == leaf && l.subleaf == subleaf)
        .map_or(0, |l| l.regs[register])
}

fn has(leaves: &[CpuidLeaf], f: &Feature) -> bool {
    register(leaves, f.0, f.1, f.2) & 1 << f.3 != 0
}

/// Names of the features in a cpuid table.
pub fn present(leaves: &[CpuidLeaf]) -> Vec<&'static str> {
    FEATURES
        .iter()
        .filter(|f| has(leaves, f))
        .map(|f| f.4)
        .collect()
}

/// The level (1 to 4) that a cpuid table reaches.
pub fn level(leaves: &[CpuidLeaf]) -> u32 {
    let there = present(leaves);
    let reached = LEVELS
        .iter()
        .take_while(|l| l.iter().all(|f| there.contains(f)));
    reached.count() as u32
}

/// What a program that was shown `recorded` (its cpuid table, its vector state) may need and `here` lacks, by name.
pub fn missing(recorded: &[CpuidLeaf], components: u64, here: &Processor) -> Vec<String> {
    let lacking = |f: &&Feature| has(recorded, f) && !has(&here.leaves, f);
    let mut names: Vec<String> = FEATURES
        .iter()
        .filter(lacking)
        .map(|f| f.4.to_string())
        .collect();
    for i in (0..64).filter(|i| components & !here.xsave_mask & 1 << i != 0) {
        let name = COMPONENTS.iter().find(|c| c.0 == i).map(|c| c.1);
        names.push(name.map_or(format!("XCR0 component {i}"), String::from));
    }
    // Where a component lies in a signal frame is the processor's to say.
    for i in (2..63).filter(|i| components & here.xsave_mask & 1 << i != 0) {
        let place = |l: &[CpuidLeaf]| [register(l, 0xd, i, 0), register(l, 0xd, i, 1)];
        if place(recorded) != place(&here.leaves) {
            names.push(format!("the same place for XCR0 component {i}"));
        }
    }
    names
}

/// Takes away what is above a level: every feature bit that is not in it, and the vector state that goes with them.
pub fn limit(p: &mut Processor, to: Limit) {
    let levels = match to {
        Limit::V2 => 2,
        Limit::V3 => 3,
    };
    let allowed: Vec<&str> = LEVELS[..levels].concat();
    let mut mask = |leaf: u32, subleaf: u32, reg: usize, keep: u32| {
        let bits = FEATURES
            .iter()
            .filter(|f| (f.0, f.1, f.2) == (leaf, subleaf, reg) && allowed.contains(&f.4))
            .fold(keep, |m, f| m | 1 << f.3);
        for l in &mut p.leaves {
            if l.leaf == leaf && l.subleaf == subleaf {
                l.regs[reg] &= bits;
            }
        }
    };
    // The hypervisor's bit says nothing of instructions; OSXSAVE goes with XSAVE.
    let osxsave = if to == Limit::V3 { 1 << 27 } else { 0 };
    mask(1, ANY, 2, 1 << 31 | osxsave);
    // No subleaf but 0, and of that only what is named.
    mask(7, 0, 0, 0);
    mask(7, 0, 1, 0);
    mask(7, 0, 2, 0);
    mask(7, 0, 3, 0);
    mask(0x8000_0001, ANY, 2, 0);
    // 3DNow! and RDTSCP, which is in no level.
    mask(0x8000_0001, ANY, 3, !(3 << 30 | 1 << 27));
    p.leaves.retain(|l| l.leaf != 7 || l.subleaf == 0);
    p.xsave_mask &= match to {
        Limit::V2 => 3,
        Limit::V3 => 7,
    };
    p.xsave_size = crate::cpu::standard_size(&p.leaves, p.xsave_mask);
    // XSAVE itself follows XCR0, which nobody can mask: whoever uses it must know of all components that it writes.
    for l in p.leaves.iter_mut().filter(|l| l.leaf == 0xd) {
        if to == Limit::V2 || l.subleaf == 1 {
            l.regs = [0; 4];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::processor;

    #[test]
    fn nothing_is_missing_on_the_machine_itself() {
        let p = processor();
        assert_eq!(missing(&p.leaves, p.xsave_mask, &p), Vec::<String>::new());
        assert!(level(&p.leaves) >= 1 && present(&p.leaves).contains(&"SSE3"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let here = processor();
        let mut bare = here.clone();
        limit(&mut bare, Limit::V2);
        let names = missing(&here.leaves, here.xsave_mask | 1 << 62, &bare);
        assert!(
            names.contains(&"XCR0 component 62".to_string()),
            "{names:?}"
        );
        if level(&here.leaves) >= 3 {
            for name in ["AVX2", "AVX state", "XSAVE"] {
                assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
            }
        }
    }

    #[test]
    fn limits_leave_their_level_and_nothing_else() {
        let here = processor();
        for (to, levels) in [(Limit::V2, 2), (Limit::V3, 3)] {
            let mut p = here.clone();
            limit(&mut p, to);
            assert_eq!(level(&p.leaves), level(&here.leaves).min(levels));
            let allowed = LEVELS[..levels as usize].concat();
            let left = present(&p.leaves);
            let above: Vec<_> = left.iter().filter(|f| !allowed.contains(f)).collect();
            assert!(above.is_empty(), "{above:?}");
            let size = if p.xsave_mask == 7 { 832 } else { 576 };
            assert_eq!(p.xsave_size, size);
        }
    }
}
