//! What naming addresses at the end needs from the time of recording: the stacks, and where files were
//! mapped.

use std::collections::HashSet;

use super::host;
use crate::symbol::Mappings;
use crate::trace::{Loss, LossCause, LossClass, Ns, Record, Stack, StackId};

/// Addresses kept for naming, 8 bytes each. Stacks past it stay in the trace, without names.
const ADDRESSES: usize = 4 << 20;

#[derive(Debug, Default)]
pub struct Names {
    mappings: Mappings,
    stacks: Vec<Stack>,
    known: HashSet<StackId>,
    addresses: usize,
    left_out: u64,
}

impl Names {
    /// To be called with every record as it comes. Gives mappings to store.
    pub fn see(&mut self, record: &Record) -> Vec<Record> {
        match record {
            Record::Stack(stack) => return self.stack(stack),
            Record::ThreadExec(exec) => self.mappings.exec(exec.pid, exec.image, exec.at),
            Record::ThreadExit(exit) if exit.key.tid == exit.pid => self.mappings.exit(exit.pid),
            _ => {}
        }
        Vec::new()
    }

    fn stack(&mut self, stack: &Stack) -> Vec<Record> {
        if self.known.contains(&stack.id) {
            return Vec::new();
        }
        if self.addresses + stack.addresses.len() > ADDRESSES {
            self.left_out += 1;
        } else {
            self.known.insert(stack.id);
            self.addresses += stack.addresses.len();
            self.stacks.push(stack.clone());
        }
        self.mappings.see(host::now(), stack).into_iter().map(Record::Mapping).collect()
    }

    /// Names every address once.
    pub fn resolve(self, at: Ns) -> impl Iterator<Item = Record> {
        let symbols = self.mappings.resolve(&self.stacks);
        let unnamed = (self.left_out > 0).then_some(Record::Loss(Loss {
            at,
            class: LossClass::Stack,
            cpu: None,
            cause: LossCause::Userspace,
            count: self.left_out,
            ns_at_risk: 0,
        }));
        symbols.into_iter().map(Record::Symbol).chain(unnamed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{StackEnd, StackKind};

    fn stack(id: StackId, addresses: Vec<u64>) -> Record {
        Record::Stack(Stack {
            image: 0,
            id,
            kind: StackKind::User,
            pid: std::process::id(),
            addresses,
            end: StackEnd::Unknown,
            python: 0,
        })
    }

    #[test]
    fn own_functions_get_their_mapping_and_a_name() {
        let address = own_functions_get_their_mapping_and_a_name as *const () as u64;
        let mut names = Names::default();
        let mappings = names.see(&stack(1, vec![address]));
        assert!(matches!(&mappings[..], [Record::Mapping(m)] if m.start <= address && address < m.end));
        assert_eq!(names.see(&stack(1, vec![address])), []);
        let symbols: Vec<Record> = names.resolve(1).collect();
        let [Record::Symbol(symbol)] = &symbols[..] else { panic!("{symbols:?}") };
        assert!(symbol.frames[0].function.contains("own_functions_get"), "{symbol:?}");
    }

    #[test]
    fn past_the_limit_stacks_are_counted_and_not_kept() {
        let mut names = Names { addresses: ADDRESSES, ..Names::default() };
        names.see(&stack(1, vec![1]));
        assert!(names.stacks.is_empty());
        let records: Vec<Record> = names.resolve(7).collect();
        assert!(matches!(&records[..], [Record::Loss(l)] if l.count == 1 && l.class == LossClass::Stack));
    }
}
