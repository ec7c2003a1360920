//! The project's chores, as `cargo xtask VERB`.

mod bench;
mod demo;
mod place;
mod setup;
mod shell;
mod test;

use std::process::ExitCode;

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
    /// A training job on a simulated device, slowed, and what whyidle says of it.
    Demo(demo::Demo),
    /// Every test; those that attach probes run as root.
    Test(test::Test),
    /// What tracing costs, beside other tracers; writes docs/performance.md.
    Bench(bench::Bench),
    #[command(hide = true)]
    Load { load: bench::LoadKind },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().verb {
        Verb::Setup => setup::everything(),
        Verb::Demo(arguments) => demo::demo(&arguments),
        Verb::Test(arguments) => test::test(&arguments),
        Verb::Bench(arguments) => bench::bench(&arguments),
        Verb::Load { load } => bench::serve(load),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Without a backtrace: what failed is another program or the machine.
        Err(e) => {
            eprintln!("xtask: error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
