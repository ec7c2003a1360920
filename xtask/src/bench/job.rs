//! The demo's job, traced and not.

use std::path::Path;

use anyhow::Result;

pub fn tables(_repeats: usize, _folder: &Path) -> Result<String> {
    Ok(String::new())
}
