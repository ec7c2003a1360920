//! Rules for functions that say nothing of their frames, as those written in assembly: in `libjpeg`, which decodes with
//! them, in `libcrypto` and OpenBLAS. Their instructions are followed from the first on, for what they do to the stack.
//!
//! What is no function, or does what is not understood, has no rules: on every way out the stack must be as it was.

mod state;

use std::collections::{BTreeMap, HashMap};

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
};
use state::State;

/// Instructions of one function, and times that any of them is looked at.
const INSTRUCTIONS: usize = 1 << 16;
const STEPS: usize = 1 << 18;
/// Functions are laid out so.
const ALIGNED: u64 = 16;

/// A stretch of code and its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) rule: u32,
}

/// Rules for `bytes` of code at `address`.
pub(super) fn stretches(bytes: &[u8], address: u64) -> Vec<Stretch> {
    let mut code = Bare {
        bytes,
        start: address,
        end: address.saturating_add(bytes.len() as u64),
        known: BTreeMap::new(),
    };
    let mut called = Vec::new();
    let mut at = Some(address);
    while let Some(entry) = called.pop().or_else(|| code.candidate(&mut at)) {
        if code.rule_at(entry).is_some() {
            continue;
        }
        let Some(function) = code.follow(entry) else { continue };
        called.extend(function.calls.iter().filter(|c| code.holds(**c)));
        code.keep(function);
    }
    code.known.into_iter().map(|(start, (end, rule))| Stretch { start, end, rule }).collect()
}

/// Code without unwind information, between such that has.
struct Bare<'a> {
    bytes: &'a [u8],
    start: u64,
    end: u64,
    /// Starts of stretches to their ends and rules.
    known: BTreeMap<u64, (u64, u32)>,
}

struct Function {
    /// Starts of instructions, where they end, and their rules.
    rules: Vec<(u64, u64, u32)>,
    calls: Vec<u64>,
}

impl Bare<'_> {
    fn holds(&self, at: u64) -> bool {
        (self.start..self.end).contains(&at)
    }

    fn stretch_at(&self, at: u64) -> Option<(u64, u32)> {
        let (_, &(end, rule)) = self.known.range(..=at).next_back()?;
        (at < end).then_some((end, rule))
    }

    fn rule_at(&self, at: u64) -> Option<u32> {
        self.stretch_at(at).map(|(_, rule)| rule)
    }

    fn decoded(&self, at: u64) -> Option<Instruction> {
        let bytes = self.bytes.get(usize::try_from(at.checked_sub(self.start)?).ok()?..)?;
        let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// The next place where a function may begin; `from` goes on past it.
    fn candidate(&self, from: &mut Option<u64>) -> Option<u64> {
        let mut at = (*from)?;
        while self.holds(at) {
            let next_aligned = (at / ALIGNED).saturating_add(1).saturating_mul(ALIGNED);
            if let Some((end, _)) = self.stretch_at(at) {
                at = end;
                continue;
            }
            match self.decoded(at) {
                Some(i) if matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) => at = i.next_ip(),
                Some(_) => {
                    *from = Some(next_aligned);
                    return Some(at);
                }
                None => at = next_aligned,
            }
        }
        *from = None;
        None
    }

    /// All that is reached from a function's first instruction.
    fn follow(&self, entry: u64) -> Option<Function> {
        let mut about = InstructionInfoFactory::new();
        let mut reached: HashMap<u64, (Instruction, State)> = HashMap::new();
        let mut calls = Vec::new();
        let mut work = vec![(entry, State::entry())];
        let mut steps = 0;
        while let Some((at, state)) = work.pop() {
            steps += 1;
            if steps > STEPS || reached.len() > INSTRUCTIONS {
                return None;
            }
            if let Some(rule) = self.rule_at(at) {
                // Into another function: its beginning, or a part they share.
                if rule != state.rule() {
                    return None;
                }
                continue;
            }
            let (instruction, mut state) = match reached.get_mut(&at) {
                Some((instruction, known)) => {
                    if !known.meet(&state) {
                        continue;
                    }
                    (*instruction, known.clone())
                }
                None => {
                    let instruction = self.decoded(at)?;
                    reached.insert(at, (instruction, state.clone()));
                    (instruction, state)
                }
            };
            state.step(&instruction, &mut about);
            let (falls, jumps) = ways(&instruction);
            if let Some(called) = called(&instruction) {
                calls.push(called);
            }
            if let Some(target) = jumps.filter(|target| self.holds(*target)) {
                work.push((target, state.clone()));
            }
            if falls {
                work.push((instruction.next_ip(), state));
            }
        }
        self.judged(&reached, calls)
    }

    /// A function whose ways out are all as they must be.
    fn judged(&self, reached: &HashMap<u64, (Instruction, State)>, calls: Vec<u64>) -> Option<Function> {
        let mut leaves = false;
        for (instruction, state) in reached.values() {
            let (flow, balanced) = (instruction.flow_control(), state.is_balanced());
            let leads_on = |target| !self.holds(target) || self.rule_at(target).is_some();
            match flow {
                FlowControl::Return if !balanced => return None,
                FlowControl::Return => leaves = true,
                // Where one leads that goes by a table is not known. Taken for functions, such places leave the
                // stack another than it was.
                FlowControl::IndirectBranch => leaves |= balanced,
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    leaves |= balanced && leads_on(instruction.near_branch_target());
                }
                _ => {}
            }
        }
        let rules = reached.iter().map(|(at, (i, state))| (*at, i.next_ip(), state.rule()));
        leaves.then(|| Function { rules: rules.collect(), calls })
    }

    fn keep(&mut self, mut function: Function) {
        function.rules.sort_unstable();
        let mut last: Option<(u64, u64, u32)> = None;
        for (start, end, rule) in function.rules {
            match &mut last {
                Some((_, to, same)) if *to == start && *same == rule => *to = end,
                Some((from, to, known)) => {
                    self.known.insert(*from, (*to, *known));
                    last = Some((start, end, rule));
                }
                None => last = Some((start, end, rule)),
            }
        }
        if let Some((start, end, rule)) = last {
            self.known.insert(start, (end, rule));
        }
    }
}

/// Whether the next instruction may follow, and which other.
fn ways(instruction: &Instruction) -> (bool, Option<u64>) {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => (true, None),
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
            let near = matches!(instruction.op0_kind(), OpKind::NearBranch64);
            (true, near.then(|| instruction.near_branch_target()))
        }
        FlowControl::UnconditionalBranch => (false, Some(instruction.near_branch_target())),
        // System calls come back.
        FlowControl::Interrupt => (instruction.code() == Code::Int_imm8, None),
        FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception => (false, None),
    }
}

fn called(instruction: &Instruction) -> Option<u64> {
    let is =
        instruction.flow_control() == FlowControl::Call && instruction.op0_kind() == OpKind::NearBranch64;
    is.then(|| instruction.near_branch_target())
}

#[cfg(test)]
mod tests;
