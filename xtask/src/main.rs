//! The project's chores, as `cargo xtask VERB`.

mod bench;
mod demo;
mod device;
mod fuzz;
mod libraries;
mod place;
mod scoreboard;
mod setup;
mod shell;
mod test;
mod vm;

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
    /// Fetch real CUDA libraries from packages, for the test that holds the table of entry points against them.
    Libraries,
    /// What tracing costs, beside other tracers; writes docs/performance.md.
    Bench(bench::Bench),
    /// Injected faults, and whether whyidle finds them; writes docs/scoreboard.md.
    Scoreboard(scoreboard::Scoreboard),
    /// The tests that attach probes, or another command, under another kernel.
    Vm(vm::Vm),
    /// The readers of what others wrote, fed with mutated files.
    Fuzz(fuzz::Fuzz),
    #[command(hide = true)]
    Load { load: bench::LoadKind },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().verb {
        Verb::Setup => success(setup::everything()),
        Verb::Demo(arguments) => success(demo::demo(&arguments)),
        Verb::Test(arguments) => success(test::test(&arguments)),
        Verb::Libraries => success(libraries::fetch()),
        Verb::Bench(arguments) => success(bench::bench(&arguments)),
        Verb::Scoreboard(arguments) => success(scoreboard::scoreboard(&arguments)),
        Verb::Vm(arguments) => vm::vm(&arguments),
        Verb::Fuzz(arguments) => success(fuzz::fuzz(&arguments)),
        Verb::Load { load } => success(bench::serve(load)),
    };
    match done {
        Ok(code) => code,
        // Without a backtrace: what failed is another program or the machine.
        Err(e) => {
            eprintln!("xtask: error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn success(done: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    done.map(|()| ExitCode::SUCCESS)
}
