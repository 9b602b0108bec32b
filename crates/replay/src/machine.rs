//! Can this machine be the recorded one? What the program was shown of the processor must be there, for it may have used it.

use crate::ReplayError;
use reprise_launch::{cpu, features};
use reprise_trace::Manifest;

/// Refuses a trace that this machine can't replay, naming what it lacks.
///
/// # Errors
/// [`ReplayError::Unsupported`], before anything is started.
pub fn check(m: &Manifest) -> Result<(), ReplayError> {
    cpu::suffices().map_err(|why| ReplayError::Unsupported(why.into()))?;
    let missing = features::missing(&m.start.cpuid, m.start.xsave_mask, &cpu::processor());
    if !missing.is_empty() {
        return Err(ReplayError::Unsupported(format!(
            "this machine's processor lacks what the recorded program was shown ({}): {}; replay it on a machine that has it, or record with --cpu baseline",
            m.machine.cpu,
            missing.join(", ")
        )));
    }
    Ok(())
}
