//! The frames of a stack by name: native ones, and in the place of the interpreter's evaluation loop the Python
//! functions that it ran.

use super::model::{NamedFrame, PYTHON, Timeline};
use crate::trace::{PythonFunction, PythonStack, Stack, StackEnd, StackId, StackKind};

/// Native functions that every thread of an interpreter begins with.
const BEGINNINGS: &[&str] = &[
    "pythread_wrapper",
    "thread_run",
    "t_bootstrap",
    "start_thread",
    "clone",
    "__clone",
    "clone3",
    "__clone3",
    "Py_BytesMain",
    "Py_RunMain",
    "pymain_main",
    "main",
    "__libc_start_main",
    "__libc_start_call_main",
    "_start",
];

impl Timeline {
    /// The frames of a stack, innermost first, inlined functions unfolded. Empty for stack 0 and for one
    /// that was lost.
    #[must_use]
    pub fn frames(&self, id: StackId) -> Vec<NamedFrame> {
        let Some(stack) = self.stacks.get(&id) else { return Vec::new() };
        let native = self.native(stack);
        match self.python_stacks.get(&stack.python) {
            Some(python) => merge(native, stack.end == StackEnd::Depth, python),
            None => native,
        }
    }

    /// What stands for the callers of the outermost frame that is known, where a walk stopped short of them. `None` for
    /// a whole stack, and one that was lost.
    #[must_use]
    pub fn beyond(&self, id: StackId) -> Option<String> {
        let stack = self.stacks.get(&id)?;
        let (StackEnd::NoTable | StackEnd::NoRule) = stack.end else {
            return match stack.end {
                StackEnd::NoMapping => Some("[not mapped]"),
                StackEnd::Unreadable => Some("[unreadable stack]"),
                StackEnd::Depth => Some("[deeper than what is kept]"),
                StackEnd::FramePointers => Some("[by frame pointers alone]"),
                StackEnd::Guessed => Some("[in part by frame pointers]"),
                _ => None,
            }
            .map(str::to_owned);
        };
        // The interpreter's functions, which stand for its own code, lie in no object.
        let frames = self.native(stack);
        let named = |module: &&str| !module.is_empty() && !module.starts_with("[anon");
        let module = frames.last().map(|f| f.module.as_str()).filter(named);
        let what = if stack.end == StackEnd::NoTable { "table" } else { "rule" };
        Some(format!("[no unwind {what}: {}]", module.unwrap_or("memory without a file")))
    }

    fn native(&self, stack: &Stack) -> Vec<NamedFrame> {
        let (pid, image) = match stack.kind {
            StackKind::Kernel => (0, 0),
            StackKind::User => (stack.pid, stack.image),
        };
        let mut frames = Vec::new();
        let astray = matches!(stack.end, StackEnd::FramePointers | StackEnd::NoMapping);
        for (depth, &address) in stack.addresses.iter().enumerate() {
            let symbol = self.names.get(&(pid, image, address));
            // A caller that lies in no code is what the walk went astray at.
            if astray && depth > 0 && symbol.is_none_or(|s| s.frames.is_empty() && s.module.is_empty()) {
                break;
            }
            match symbol {
                Some(symbol) if !symbol.frames.is_empty() => {
                    frames.extend(symbol.frames.iter().map(|f| NamedFrame {
                        name: f.function.clone(),
                        module: symbol.module.clone(),
                        file: f.file.clone(),
                        line: f.line,
                        resolved: true,
                    }));
                }
                Some(symbol) if !symbol.module.is_empty() => frames.push(NamedFrame {
                    name: format!("{}+{:#x}", symbol.module, symbol.file_offset),
                    module: symbol.module.clone(),
                    file: None,
                    line: None,
                    resolved: false,
                }),
                _ => frames.push(NamedFrame {
                    name: format!("{address:#x}"),
                    module: String::new(),
                    file: None,
                    line: None,
                    resolved: false,
                }),
            }
        }
        frames
    }
}

impl NamedFrame {
    /// As one of many: of native functions, whose names say it all, no file.
    #[must_use]
    pub fn in_stack(&self) -> String {
        if self.module == PYTHON { self.shown() } else { self.name.clone() }
    }

    /// Its name; a Python function's with the file's base name and the line: `decode (data.py:12)`.
    #[must_use]
    pub fn shown(&self) -> String {
        let base = |file: &str| file.rsplit('/').next().unwrap_or_default().to_owned();
        match (self.file.as_deref().map(base), self.line) {
            (Some(file), Some(line)) => format!("{} ({file}:{line})", self.name),
            (Some(file), None) => format!("{} ({file})", self.name),
            (None, _) => self.name.clone(),
        }
    }
}

/// Each run of the evaluation loop gives way to the functions it ran. Where the two sides do not tell of the
/// same runs, because frames of either are missing, the functions stand together at the innermost one.
fn merge(native: Vec<NamedFrame>, native_is_cut: bool, python: &PythonStack) -> Vec<NamedFrame> {
    let runs: Vec<&[PythonFunction]> = python.functions.split_inclusive(|f| f.ends_run).collect();
    let loops = native.iter().filter(|f| is_loop(f)).count();
    let agree = loops == runs.len()
        || (loops > runs.len() && !python.whole)
        || (0 < loops && loops < runs.len() && native_is_cut);
    if loops == 0 {
        let at = native.iter().position(is_beginning).unwrap_or(native.len());
        let (inner, outer) = native.split_at(at);
        return inner.iter().cloned().chain(named(&python.functions)).chain(outer.to_vec()).collect();
    }
    let mut merged = Vec::with_capacity(native.len() + python.functions.len());
    let mut runs = runs.into_iter();
    let mut seen = 0;
    for frame in native {
        if !is_loop(&frame) {
            merged.push(frame);
            continue;
        }
        seen += 1;
        // The last loop that is known takes what is left, and so does the first where they do not agree.
        let takes = if !agree || seen == loops { usize::MAX } else { 1 };
        let before = merged.len();
        merged.extend(runs.by_ref().take(takes).flat_map(named));
        if agree && merged.len() == before {
            merged.push(frame);
        }
    }
    merged
}

fn named(functions: &[PythonFunction]) -> impl Iterator<Item = NamedFrame> {
    functions.iter().map(|function| {
        let resolved = !function.name.is_empty();
        NamedFrame {
            name: if resolved { function.name.clone() } else { "[a Python function]".to_owned() },
            module: PYTHON.to_owned(),
            file: resolved.then(|| function.file.clone()),
            line: function.line,
            resolved,
        }
    })
}

/// Compilers put parts of it under names with a suffix.
fn is_loop(frame: &NamedFrame) -> bool {
    frame.resolved && frame.name.split('.').next() == Some("_PyEval_EvalFrameDefault")
}

fn is_beginning(frame: &NamedFrame) -> bool {
    let name = frame.name.split(['.', '@']).next().unwrap_or_default();
    frame.resolved && BEGINNINGS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(names: &[&str]) -> Vec<NamedFrame> {
        let frame = |name: &&str| NamedFrame {
            name: (*name).to_owned(),
            module: "python3.11".to_owned(),
            file: None,
            line: None,
            resolved: true,
        };
        names.iter().map(frame).collect()
    }

    /// One text a run, its functions innermost first.
    fn python(runs: &[&str], whole: bool) -> PythonStack {
        let functions = runs.iter().flat_map(|run| {
            let names: Vec<&str> = run.split(' ').collect();
            let last = names.len() - 1;
            names.into_iter().enumerate().map(move |(i, name)| PythonFunction {
                name: name.to_owned(),
                file: "x.py".to_owned(),
                line: Some(7),
                ends_run: i == last,
            })
        });
        PythonStack { id: 1, pid: 2, functions: functions.collect(), whole }
    }

    fn names(frames: &[NamedFrame]) -> String {
        frames.iter().map(|f| f.name.as_str()).collect::<Vec<_>>().join(" ")
    }

    const LOOP: &str = "_PyEval_EvalFrameDefault";

    #[test]
    fn each_loop_gives_way_to_what_it_ran() {
        let stack = native(&["read", "os_read", LOOP, "call", "_PyEval_EvalFrameDefault.cold", "main"]);
        let merged = merge(stack, false, &python(&["a b", "c"], true));
        assert_eq!(names(&merged), "read os_read a b call c main");
        assert_eq!((merged[2].file.as_deref(), merged[2].line), (Some("x.py"), Some(7)));
        assert_eq!(merged[2].module, PYTHON);
    }

    #[test]
    fn where_runs_do_not_agree_the_functions_stand_together() {
        let stack = native(&["read", LOOP, "call", LOOP, "main"]);
        let merged = merge(stack, false, &python(&["a", "b", "c"], true));
        assert_eq!(names(&merged), "read a b c call main");
    }

    #[test]
    fn a_walk_that_was_cut_agrees_from_the_innermost_on() {
        let stack = || native(&["read", LOOP, "call", LOOP, "call", LOOP, "main"]);
        let merged = merge(stack(), false, &python(&["a", "b"], false));
        assert_eq!(names(&merged), format!("read a call b call {LOOP} main"));
        let merged = merge(stack(), true, &python(&["a", "b", "c", "d e"], true));
        assert_eq!(names(&merged), "read a call b call c d e main");
    }

    #[test]
    fn without_a_loop_they_stand_outside_of_what_was_seen() {
        assert_eq!(names(&merge(native(&["read"]), false, &python(&["a", "b"], true))), "read a b");
        let stack = native(&["read", "os_read", "Py_BytesMain", "_start"]);
        assert_eq!(names(&merge(stack, false, &python(&["a"], true))), "read os_read a Py_BytesMain _start");
        assert_eq!(names(&merge(Vec::new(), false, &python(&["a"], true))), "a");
    }

    #[test]
    fn a_function_that_could_not_be_read_is_not_resolved() {
        let mut stack = python(&["a"], true);
        stack.functions[0].name.clear();
        let merged = merge(native(&[LOOP]), false, &stack);
        assert!(!merged[0].resolved && merged[0].file.is_none());
    }
}
