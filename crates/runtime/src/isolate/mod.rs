//! Private views of one shared memory (DThreads 4.1.3, 4.2.2; DESIGN 5): what thread-processes see, and how it becomes common; and how several processes
//! look like one.
//!
//! All memory that the program can write is mapped from one **backing** (a memfd that nobody has a descriptor of). The program's addresses are
//! private, copy-on-write **views** of it; the runtime also has it mapped shared, as the **mirror**. A thread's writes go to copies that the
//! kernel makes silently. At a synchronisation point they are found by one PAGEMAP_SCAN (pages of a view that are not the file's are
//! copies), compared with what they were, and the bytes that differ are written to the mirror: the **commit**. Pages that were not copied
//! show commits of others at once, so commits are only made while no thread runs the program's code ([`phases`]).
//!
//! Everything of the runtime's own that can be written is in memory that all thread-processes share, so that its tables are the same for all, as
//! they are for threads ([`split`]).
//!
//! To the kernel each thread is a process then. What belongs to the process as a whole belongs to the **first** of them, which makes calls for the others
//! ([`proxy`], [`one_process`], [`children`]); what changes the address space is done by one and followed by all ([`space`], [`code`]); signals to the process
//! are led to whoever takes them ([`shared_signals`], [`outside`], [`signals`], [`signal_descriptors`]); and they end together ([`ending`]).

pub mod apart;
pub mod call;
pub mod children;
pub mod code;
pub mod commit;
pub mod conflicts;
pub mod ending;
pub mod layout;
pub mod maps;
pub mod members;
pub mod one_process;
pub mod options;
pub mod output_descriptors;
pub mod outside;
pub mod owned;
pub mod pages;
pub mod phases;
pub mod proxy;
pub mod reuse;
pub mod scan;
pub mod shared_signals;
pub mod signal_descriptors;
pub mod signals;
pub mod space;
pub mod split;
pub mod views;
