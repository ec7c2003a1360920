//! The project's chores, as `cargo xtask VERB`.

mod place;
mod setup;
mod shell;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "whyidle's chores")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Find or fetch what the build, the demo and the tests need; changes nothing twice.
    Setup,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().verb {
        Verb::Setup => setup::everything(),
    }
}
