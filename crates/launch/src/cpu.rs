//! What the program sees of the processor: features that can't be replayed are masked out of cpuid (DESIGN 3).

use reprise_abi::session::{CpuidLeaf, MAX_CPUID};
use std::arch::x86_64::{__cpuid, __cpuid_count, __get_cpuid_max, _xgetbv};

/// Subleaf of an entry that is the same for all subleaves.
pub const ANY: u32 = u32::MAX;
/// XCR0 components that signal frames hold: x87, SSE, AVX, AVX-512 (opmask, upper halves, upper registers).
const KNOWN_COMPONENTS: u64 = 0xe7;

/// The processor as the program shall see it.
#[derive(Clone, Debug)]
pub struct Processor {
    /// The cpuid table.
    pub leaves: Vec<CpuidLeaf>,
    /// Components of the vector state.
    pub xsave_mask: u64,
    /// Bytes of the XSAVE area for them, in standard format.
    pub xsave_size: u64,
}

fn entry(leaf: u32, subleaf: u32) -> CpuidLeaf {
    let r = __cpuid_count(leaf, if subleaf == ANY { 0 } else { subleaf });
    CpuidLeaf {
        leaf,
        subleaf,
        regs: [r.eax, r.ebx, r.ecx, r.edx],
    }
}

/// Has the processor what the runtime itself needs?
///
/// # Errors
/// When it hasn't: the name of that.
pub fn suffices() -> Result<(), &'static str> {
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid(1).ecx & OSXSAVE == 0 {
        return Err("this machine's processor, or its kernel, has no XSAVE, which Reprise needs (processors have it since 2011)");
    }
    Ok(())
}

/// Asks the processor, and masks.
pub fn processor() -> Processor {
    // SAFETY: as above; xgetbv is there when OSXSAVE says so.
    let xcr0 = unsafe {
        if __cpuid(1).ecx & 1 << 27 != 0 {
            xgetbv0()
        } else {
            3
        }
    };
    let xsave_mask = xcr0 & KNOWN_COMPONENTS;
    let (max, max_extended) = (__get_cpuid_max(0).0, __get_cpuid_max(0x8000_0000).0);
    let mut leaves = vec![];
    // cpuid traps to the hypervisor on virtual machines and costs tens of microseconds: only leaves that programs ask for.
    for leaf in [
        0, 1, 2, 4, 5, 6, 7, 0xb, 0xd, 0x14, 0x15, 0x16, 0x19, 0x1a, 0x1f, 0x24,
    ] {
        if leaf > max {
            continue;
        }
        match leaf {
            4 => {
                for s in 0..8 {
                    let l = entry(leaf, s);
                    leaves.push(l);
                    if l.regs[0] & 0x1f == 0 {
                        break;
                    }
                }
            }
            7 => {
                let first = entry(7, 0);
                leaves.push(first);
                for s in 1..=first.regs[0].min(2) {
                    leaves.push(entry(7, s));
                }
            }
            0xb | 0x1f => {
                for s in 0..4 {
                    let l = entry(leaf, s);
                    leaves.push(l);
                    if l.regs[2] >> 8 & 0xff == 0 {
                        break;
                    }
                }
            }
            0xd => {
                leaves.push(entry(0xd, 0));
                leaves.push(entry(0xd, 1));
                for s in (2..63).filter(|s| xsave_mask & 1 << s != 0) {
                    leaves.push(entry(0xd, s));
                }
            }
            // Processor trace, performance: nothing that a recording could give.
            0x14 | 0x24 => leaves.push(CpuidLeaf {
                leaf,
                subleaf: ANY,
                regs: [0; 4],
            }),
            _ => leaves.push(entry(leaf, ANY)),
        }
    }
    for leaf in 0x8000_0000..=max_extended.min(0x8000_0008) {
        leaves.push(entry(leaf, ANY));
    }
    // AMD's: TLBs, caches (one subleaf each), topology, more features.
    for leaf in [
        0x8000_0019,
        0x8000_001a,
        0x8000_001d,
        0x8000_001e,
        0x8000_0021,
    ] {
        match leaf {
            _ if leaf > max_extended => {}
            0x8000_001d => {
                for s in 0..8 {
                    let l = entry(leaf, s);
                    leaves.push(l);
                    if l.regs[0] & 0x1f == 0 {
                        break;
                    }
                }
            }
            _ => leaves.push(entry(leaf, ANY)),
        }
    }
    leaves.push(CpuidLeaf {
        leaf: 0x4000_0000,
        subleaf: ANY,
        regs: [0; 4],
    });
    let xsave_size = standard_size(&leaves, xsave_mask);
    for l in &mut leaves {
        mask(l, xsave_mask, xsave_size);
    }
    leaves.truncate(MAX_CPUID);
    Processor {
        leaves,
        xsave_mask,
        xsave_size,
    }
}

#[target_feature(enable = "xsave")]
unsafe fn xgetbv0() -> u64 {
    // SAFETY: the caller has checked OSXSAVE.
    unsafe { _xgetbv(0) }
}

/// Bytes of an XSAVE area in standard format that holds these components.
pub(crate) fn standard_size(leaves: &[CpuidLeaf], components: u64) -> u64 {
    leaves
        .iter()
        .filter(|l| {
            l.leaf == 0xd && l.subleaf >= 2 && l.subleaf < 63 && components & 1 << l.subleaf != 0
        })
        .map(|l| (l.regs[0] + l.regs[1]) as u64)
        .fold(576, u64::max)
}

/// Removes what can't be replayed, and what differs between the processors of one machine.
fn mask(l: &mut CpuidLeaf, xsave_mask: u64, xsave_size: u64) {
    let [eax, ebx, ecx, edx] = &mut l.regs;
    match (l.leaf, l.subleaf) {
        (1, _) => {
            // APIC id; MONITOR, RDRAND.
            *ebx &= 0x00ff_ffff;
            *ecx &= !(1 << 3 | 1 << 30);
        }
        (7, 0) => {
            // FSGSBASE (%gs is the runtime's), HLE, RTM, RDSEED; PKU, OSPKE, WAITPKG, RDPID; AMX.
            *ebx &= !(1 | 1 << 4 | 1 << 11 | 1 << 18);
            *ecx &= !(1 << 3 | 1 << 4 | 1 << 5 | 1 << 22);
            *edx &= !(1 << 11 | 1 << 13 | 1 << 22 | 1 << 24 | 1 << 25);
        }
        (7, 1) => {
            // AMX-FP16, AMX-COMPLEX, user interrupts.
            *eax &= !(1 << 21);
            *edx &= !(1 << 8 | 1 << 17);
        }
        (0xd, 0) => {
            *eax &= xsave_mask as u32;
            *edx &= (xsave_mask >> 32) as u32;
            *ebx = xsave_size as u32;
            *ecx = xsave_size as u32;
        }
        // XGETBV with ecx=1 and XSAVES tell of machine state that no log holds.
        (0xd, 1) => *eax &= !(1 << 2 | 1 << 3 | 1 << 4),
        // x2APIC id.
        (0xb | 0x1f, _) => *edx = 0,
        // Extended APIC id; unit and node of this processor.
        (0x8000_001e, _) => {
            *eax = 0;
            *ebx &= !0xff;
            *ecx &= !0xff;
        }
        (0x19, _) => *l = CpuidLeaf { regs: [0; 4], ..*l },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_and_transactions_are_hidden() {
        let p = processor();
        let find = |leaf, sub| {
            p.leaves
                .iter()
                .find(|l| l.leaf == leaf && l.subleaf == sub)
                .map(|l| l.regs)
        };
        let one = find(1, ANY).expect("leaf 1");
        assert_eq!(one[2] & 1 << 30, 0, "rdrand");
        if let Some(seven) = find(7, 0) {
            assert_eq!(
                seven[1] & (1 | 1 << 11 | 1 << 18),
                0,
                "fsgsbase, rtm, rdseed"
            );
        }
        assert!(p.xsave_size >= 576 && p.xsave_mask & 3 == 3);
    }
}
