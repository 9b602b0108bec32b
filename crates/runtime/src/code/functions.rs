//! The modules that the program's mappings belong to, and their functions ([`reprise_code::functions`]).

use crate::machine::guard::Program;
use crate::memory::{self, Region};
use reprise_code::elf::Module;
use reprise_code::entries;

/// Mappings that lie between the beginning of a module and its code, at most.
const MAX_BEFORE: usize = 8;

/// The table of a module of the program's.
pub type Functions = reprise_code::functions::Functions<Program>;

/// The functions of the module that a mapping of code belongs to, if it has the table.
pub fn around(code: &Region) -> Option<Functions> {
    before(code).find_map(|at| Functions::at(Program, at, code.start))
}

/// The module that a mapping of code belongs to, if it belongs to one.
pub fn module_around(code: &Region) -> Option<Module> {
    before(code)
        .find_map(|at| Module::at(&Program, at).filter(|module| module.holds(&Program, code.start)))
}

/// Calls `function` with beginning and end of each function of the module that lies in `code`, as entries without a table tell them.
pub fn of_entries(module: &Module, code: &Region, mut function: impl FnMut(u64, u64)) {
    let holds =
        |r: &Region| !r.is_executable() && !r.is_writable() && module.holds(&Program, r.start);
    for r in memory::each().filter(holds) {
        entries::each(
            &Program,
            r.start..r.end,
            code.start..code.end,
            &mut function,
        );
    }
}

/// Where the mapping, and those before it, begin: the nearest first.
fn before(code: &Region) -> impl Iterator<Item = u64> {
    memory::down_from(code)
        .take(MAX_BEFORE + 1)
        .map(|r| r.start)
}
