//! Relocates the runtime's image (elf(5), `R_X86_64_RELATIVE`): it lies at [`IMAGE_BASE`] in every process. It is done where the image is built, so that whoever
//! loads it has nothing left to change, nor to copy for that; and to the images in traces that were made before, when they are loaded.

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela};
use object::Endianness;
use reprise_abi::layout::IMAGE_BASE;

const E: Endianness = Endianness::Little;
/// Bytes of an entry of the dynamic section, and where its value is.
const DYN: (usize, usize) = (16, 8);
/// Bytes of a word that is relocated.
const WORD: usize = 8;

/// What is to be written where in an image's file.
pub struct Plan {
    words: Vec<(usize, u64)>,
    /// Where it says how many bytes of relocations there are.
    size_at: Option<usize>,
}

impl Plan {
    /// Of an ELF file, at an address that is a multiple of 8.
    ///
    /// # Errors
    /// When it makes no sense: why.
    pub fn of(file: &[u8]) -> Result<Plan, String> {
        let header = elf::FileHeader64::<Endianness>::parse(file).map_err(|e| e.to_string())?;
        let programs = header.program_headers(E, file);
        let programs = programs.map_err(|e| e.to_string())?;
        // Where in the file these bytes of the image are.
        let in_file = |address: u64, len: usize| {
            let loaded = programs.iter().filter(|p| p.p_type(E) == elf::PT_LOAD);
            let mut holding = loaded.filter_map(|p| {
                let behind = address.checked_sub(p.p_vaddr(E))?;
                let end = behind.checked_add(len as u64)?;
                let at = p.p_offset(E).checked_add(behind)? as usize;
                let is_there = end <= p.p_filesz(E) && file.get(at..at.checked_add(len)?).is_some();
                is_there.then_some(at)
            });
            holding.next()
        };
        let (mut table, mut size, mut size_at) = (0, 0, None);
        for p in programs {
            let list = p.dynamic(E, file).map_err(|e| e.to_string())?;
            for (i, d) in list.unwrap_or(&[]).iter().enumerate() {
                match d.d_tag(E) as u32 {
                    elf::DT_RELA => table = d.d_val(E),
                    elf::DT_RELASZ => {
                        size = d.d_val(E) as usize;
                        size_at = Some(p.p_offset(E) as usize + i * DYN.0 + DYN.1);
                    }
                    _ => {}
                }
            }
        }
        if size == 0 {
            let words = Vec::new();
            return Ok(Plan { words, size_at });
        }
        let table = in_file(table, size).map(|at| &file[at..at + size]);
        let table = table.ok_or("relocations outside the image")?;
        let list = object::pod::slice_from_all_bytes::<elf::Rela64<Endianness>>(table)
            .map_err(|()| "relocation")?;
        let relocated = |r: &elf::Rela64<Endianness>| {
            if Rela::r_type(r, E, false) != elf::R_X86_64_RELATIVE {
                return Err("a relocation that isn't relative");
            }
            let value = IMAGE_BASE.wrapping_add(Rela::r_addend(r, E) as u64);
            let at = in_file(Rela::r_offset(r, E), WORD);
            Ok((at.ok_or("relocation outside the image")?, value))
        };
        let words = list.iter().map(relocated).collect::<Result<_, _>>()?;
        Ok(Plan { words, size_at })
    }

    /// Is nothing left to be done? (The build, of which this file is a part, too, doesn't ask.)
    #[allow(dead_code)]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Does it to the bytes of the file that it is of, and says in them that there are no relocations.
    pub fn apply(&self, file: &mut [u8]) {
        for (at, value) in &self.words {
            file[*at..*at + WORD].copy_from_slice(&value.to_le_bytes());
        }
        if let Some(at) = self.size_at {
            file[at..at + WORD].fill(0);
        }
    }

    /// Makes the words as a linker leaves them.
    #[cfg(test)]
    pub fn blank(&self, file: &mut [u8]) {
        for (at, _) in &self.words {
            file[*at..*at + WORD].fill(0);
        }
    }
}
