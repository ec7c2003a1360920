//! The command line of `whyidle`; see `cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    whyidle::cli::main()
}
