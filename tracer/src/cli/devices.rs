//! Opens the device library, or says why there is none.

use std::path::Path;

use super::error::CliError;
use crate::capture::devices::{Feed, NoDevices, Nvml};

/// # Errors
/// The library named by the user cannot be used. That the system has none is no error: what threads wait
/// for can be analysed without.
pub fn open(named: Option<&Path>) -> Result<Box<dyn Feed>, CliError> {
    match (Nvml::open(named), named) {
        (Ok(nvml), _) => Ok(Box::new(nvml)),
        (Err(error), Some(_)) => Err(error.into()),
        (Err(error), None) => Ok(Box::new(NoDevices { reason: error.to_string() })),
    }
}
