//! Python stacks against what a program writes down about itself, in every version, and in processes and interpreters
//! that it begins.

use serial_test::file_serial;
use whyidle_tests::python::{Python, interpreters};
use whyidle_tests::truth::Outcome;

/// Of a hundred stacks of workers and interpreters, which come and go, so many have all their names. A process that is
/// begun anew has none before its interpreter is found.
const NAMED: u32 = 80;

fn are_right(work: &str, named: u32, pythons: impl IntoIterator<Item = Python>) {
    let mut failures = Vec::new();
    for python in pythons {
        let outcome = Outcome::of(&python.root, python.command(), work);
        failures.extend(outcome.failures_with(&format!("{work}: {python}"), named));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
#[file_serial(probes)]
fn functions_and_lines_are_what_the_program_says() {
    are_right("threads", 98, interpreters());
}

#[test]
#[file_serial(probes)]
fn a_child_that_still_has_its_parents_memory_takes_nothing_from_it() {
    are_right("forked", 98, interpreters());
}

#[test]
#[file_serial(probes)]
fn those_of_workers_that_are_begun_anew_too() {
    for work in ["spawn", "forkserver"] {
        are_right(work, NAMED, interpreters());
    }
}

#[test]
#[file_serial(probes)]
fn a_thread_in_an_interpreter_of_its_own_is_there_or_where_it_was_begun() {
    are_right("interpreters", NAMED, interpreters());
}
