//! Relocates the runtime's image where it is built (elf(5), `R_X86_64_RELATIVE`): it lies at [`IMAGE_BASE`] in every process, and whoever loads it has
//! nothing left to change, nor to copy for that.

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela};
use object::Endianness;
use reprise_abi::layout::IMAGE_BASE;

const E: Endianness = Endianness::Little;
/// Bytes of an entry of the dynamic section, and where its value is.
const DYN: (usize, usize) = (16, 8);

/// Applies the relocations of the ELF file, and says in it that there are none.
pub fn apply(file: &mut [u8]) -> Result<(), String> {
    let plan = Plan::of(file).map_err(|e| format!("the runtime's image: {e}"))?;
    for (at, value) in plan.words {
        let word = file.get_mut(at..at + 8);
        word.ok_or("a relocation outside the image's file")?
            .copy_from_slice(&value.to_le_bytes());
    }
    file[plan.size_at..plan.size_at + 8].fill(0);
    Ok(())
}

/// What is to be written where in the file.
struct Plan {
    words: Vec<(usize, u64)>,
    /// Where it says how many bytes of relocations there are.
    size_at: usize,
}

impl Plan {
    fn of(file: &[u8]) -> Result<Plan, Box<dyn std::error::Error>> {
        let header = elf::FileHeader64::<Endianness>::parse(file)?;
        let programs = header.program_headers(E, file)?;
        let in_file = |address: u64| {
            let loaded = programs.iter().filter(|p| p.p_type(E) == elf::PT_LOAD);
            let mut holding = loaded.filter_map(|p| {
                let behind = address.checked_sub(p.p_vaddr(E))?;
                (behind < p.p_filesz(E)).then_some((p.p_offset(E) + behind) as usize)
            });
            holding.next().ok_or("an address outside the image")
        };
        let (mut table, mut size, mut size_at) = (0, 0, None);
        for p in programs {
            for (i, d) in p.dynamic(E, file)?.unwrap_or(&[]).iter().enumerate() {
                match d.d_tag(E) as u32 {
                    elf::DT_RELA => table = in_file(d.d_val(E))?,
                    elf::DT_RELASZ => {
                        size = d.d_val(E) as usize;
                        size_at = Some(p.p_offset(E) as usize + i * DYN.0 + DYN.1);
                    }
                    _ => {}
                }
            }
        }
        let size_at = size_at.ok_or("no relocations")?;
        let table = file.get(table..table + size).ok_or("a cut table")?;
        let list = object::pod::slice_from_all_bytes::<elf::Rela64<Endianness>>(table)
            .map_err(|()| "a table with a rest")?;
        let relocated = |r: &elf::Rela64<Endianness>| {
            if Rela::r_type(r, E, false) != elf::R_X86_64_RELATIVE {
                return Err("a relocation that isn't relative");
            }
            let value = IMAGE_BASE.wrapping_add(Rela::r_addend(r, E) as u64);
            Ok((in_file(Rela::r_offset(r, E))?, value))
        };
        let words = list.iter().map(relocated).collect::<Result<_, _>>()?;
        Ok(Plan { words, size_at })
    }
}
