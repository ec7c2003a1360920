//! A program compiled here, that says where it is.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::user;
use crate::trace::Stack;

/// Prints where `middle` is and where it returns to, then waits for the end of its input.
const PROGRAM: &str = r#"
#include <stdio.h>
static volatile int sink;
static inline __attribute__((always_inline)) void *leaf(void) { /* line 4 */
  sink++;
  return __builtin_return_address(0);                           /* line 6 */
}
__attribute__((noinline)) void *middle(void) { return leaf(); }
int main(void) {
  void *to = middle();                                          /* line 10 */
  sink++;
  printf("%p %p\n", (void *)middle, to);
  fflush(stdout);
  return getchar();
}
"#;

pub(super) struct Program {
    child: Child,
    pub(super) path: PathBuf,
    /// `middle`, and where it returns to.
    pub(super) addresses: [u64; 2],
    _folder: tempfile::TempDir,
}

impl Program {
    pub(super) fn start(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (source, path) = (folder.path().join("prog.c"), folder.path().join("prog"));
        fs::write(&source, PROGRAM).unwrap();
        // The linker that Rust itself needs.
        let built = Command::new("cc").args(flags).arg("-o").arg(&path).arg(&source).status().unwrap();
        assert!(built.success());
        let mut child = Command::new(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap();
        let addresses = line.split(' ').map(address).collect::<Vec<_>>().try_into().unwrap();
        Self { child, path, addresses, _folder: folder }
    }

    pub(super) fn stack(&self) -> Stack {
        Stack { pid: self.child.id(), ..user(&self.addresses) }
    }

    pub(super) fn end(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}
