//! `whyidle schema`: the JSON contract as a schema.

use clap::Args;

use super::error::CliError;
use super::output;
use crate::render;

#[derive(Clone, Debug, Args)]
pub struct Schema {}

impl Schema {
    pub fn run(&self) -> Result<(), CliError> {
        output::print(&render::schema()?)
    }
}
