//! What is known at an instruction of where the frame lies, and how instructions change that.

use std::collections::BTreeMap;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::unwind::rule::{Cfa, Frame, packed};
use tracer_ebpf::wire::unwind::rule;

/// A register's value, or that of a word in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// The frame's address and so many bytes.
    Cfa(i64),
    /// An address in the frame was rounded down, and so many bytes were added.
    Aligned(i64),
    /// What the caller has in `rbp`.
    CallerBp,
    Unknown,
}

impl Value {
    fn plus(self, bytes: i64) -> Self {
        match self {
            Self::Cfa(offset) => Self::Cfa(offset.wrapping_add(bytes)),
            Self::Aligned(offset) => Self::Aligned(offset.wrapping_add(bytes)),
            Self::CallerBp | Self::Unknown => Self::Unknown,
        }
    }
}

/// A word of the frame: whether it is reached from the rounded address, and how far from it.
type Slot = (bool, i64);

fn slot(place: Value) -> Option<Slot> {
    match place {
        Value::Cfa(offset) => Some((false, offset)),
        Value::Aligned(offset) => Some((true, offset)),
        Value::CallerBp | Value::Unknown => None,
    }
}

const SP: usize = 4;
const BP: usize = 5;
/// Of which a called function need not give back what they had: `rax`, `rcx`, `rdx`, `rsi`, `rdi`, `r8` to `r11`.
const VOLATILE: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
const WORD: i64 = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// By the processor's numbers.
    registers: [Value; 16],
    slots: BTreeMap<Slot, Value>,
}

impl State {
    /// At a function's first instruction.
    pub(super) fn entry() -> Self {
        let mut registers = [Value::Unknown; 16];
        registers[SP] = Value::Cfa(-WORD);
        registers[BP] = Value::CallerBp;
        Self { registers, slots: BTreeMap::new() }
    }

    /// Whether stack and frame pointer are as they were at the first instruction.
    pub(super) fn is_balanced(&self) -> bool {
        self.registers[SP] == Value::Cfa(-WORD) && self.registers[BP] == Value::CallerBp
    }

    /// Keeps what holds on another way to the same instruction too; whether that is less.
    pub(super) fn meet(&mut self, other: &Self) -> bool {
        let mut less = false;
        for (own, other) in self.registers.iter_mut().zip(other.registers) {
            if *own != other && *own != Value::Unknown {
                *own = Value::Unknown;
                less = true;
            }
        }
        let before = self.slots.len();
        self.slots.retain(|slot, value| other.slots.get(slot) == Some(value));
        less || self.slots.len() < before
    }

    /// `NONE` where no rule says it.
    pub(super) fn rule(&self) -> u32 {
        let frame = self.frame();
        let ways = [self.by_stack_pointer(), self.by_frame_pointer(), self.by_word()];
        let rules = ways.into_iter().flatten().map(|cfa| packed(cfa, frame));
        rules.into_iter().find(|r| *r != rule::NONE).unwrap_or(rule::NONE)
    }

    fn by_stack_pointer(&self) -> Option<Cfa> {
        if let Value::Cfa(offset) = self.registers[SP] { Some(Cfa::Sp(-offset)) } else { None }
    }

    fn by_frame_pointer(&self) -> Option<Cfa> {
        if let Value::Cfa(offset) = self.registers[BP] { Some(Cfa::Bp(-offset)) } else { None }
    }

    /// A word beside the rounded address has the stack pointer from before.
    fn by_word(&self) -> Option<Cfa> {
        let mut words = self.slots.iter().filter(|((aligned, _), _)| *aligned);
        words.find_map(|((_, at), value)| match (value, self.registers[BP], self.registers[SP]) {
            (Value::Cfa(offset), Value::Aligned(bp), _) => Some(Cfa::AtBp(at - bp, -offset)),
            (Value::Cfa(offset), _, Value::Aligned(sp)) => Some(Cfa::AtSp(at - sp, -offset)),
            _ => None,
        })
    }

    fn frame(&self) -> Frame {
        if self.registers[BP] == Value::CallerBp {
            return Frame::Same;
        }
        let kept = self.slots.iter().find(|(_, value)| **value == Value::CallerBp);
        match (kept, self.registers[BP]) {
            (Some(((false, at), _)), _) => Frame::Below(-at),
            (Some(((true, at), _)), Value::Aligned(bp)) if *at == bp => Frame::AtBp,
            _ => Frame::Lost,
        }
    }

    /// Once the instruction has been carried out. What a called function does is not this one's.
    pub(super) fn step(&mut self, instruction: &Instruction, about: &mut InstructionInfoFactory) {
        let (first, second) = (instruction.op0_kind(), instruction.op1_kind());
        let words = |register: Register| register.is_gpr64();
        match (instruction.mnemonic(), first, second) {
            (Mnemonic::Push, ..) => {
                let pushed = self.get(instruction.op0_register());
                self.move_stack(instruction);
                self.store(self.registers[SP], WORD, pushed);
            }
            (Mnemonic::Pop, OpKind::Register, _) => {
                let popped = self.load(self.registers[SP]);
                self.move_stack(instruction);
                self.set(instruction.op0_register(), popped);
            }
            (Mnemonic::Leave, ..) => {
                self.registers[SP] = self.registers[BP];
                self.registers[BP] = self.load(self.registers[SP]);
                self.registers[SP] = self.registers[SP].plus(WORD);
            }
            (Mnemonic::Call, ..) => VOLATILE.into_iter().for_each(|r| self.registers[r] = Value::Unknown),
            (Mnemonic::Mov, OpKind::Register, OpKind::Register) if words(instruction.op0_register()) => {
                self.set(instruction.op0_register(), self.get(instruction.op1_register()));
            }
            (Mnemonic::Mov, OpKind::Register, OpKind::Memory) if words(instruction.op0_register()) => {
                self.set(instruction.op0_register(), self.load(self.place(instruction)));
            }
            (Mnemonic::Mov, OpKind::Memory, OpKind::Register) if words(instruction.op1_register()) => {
                self.store(self.place(instruction), WORD, self.get(instruction.op1_register()));
            }
            (Mnemonic::Lea, OpKind::Register, OpKind::Memory) if words(instruction.op0_register()) => {
                self.set(instruction.op0_register(), self.place(instruction));
            }
            (Mnemonic::Add | Mnemonic::Sub | Mnemonic::And, OpKind::Register, _)
                if words(instruction.op0_register()) && constant(instruction).is_some() =>
            {
                self.compute(instruction, constant(instruction).unwrap_or(0));
            }
            _ => self.forget_written(instruction, about),
        }
    }

    fn compute(&mut self, instruction: &Instruction, constant: i64) {
        let register = instruction.op0_register();
        let value = self.get(register);
        let value = match instruction.mnemonic() {
            Mnemonic::Add => value.plus(constant),
            Mnemonic::Sub => value.plus(constant.wrapping_neg()),
            _ if constant < 0 && slot(value).is_some() => {
                // Of two rounded addresses it is not known how far apart they are.
                self.slots.retain(|(aligned, _), _| !aligned);
                for register in &mut self.registers {
                    if matches!(register, Value::Aligned(_)) {
                        *register = Value::Unknown;
                    }
                }
                Value::Aligned(0)
            }
            _ => Value::Unknown,
        };
        self.set(register, value);
    }

    fn forget_written(&mut self, instruction: &Instruction, about: &mut InstructionInfoFactory) {
        let moved = self.registers[SP].plus(instruction.stack_pointer_increment().into());
        let writes = |access: OpAccess| {
            use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
            matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
        };
        let about = about.info(instruction);
        for memory in about.used_memory().iter().filter(|m| writes(m.access())) {
            if memory.index() == Register::None {
                let place = self.get(memory.base()).plus(memory.displacement().cast_signed());
                let bytes = i64::try_from(memory.memory_size().size()).unwrap_or(WORD);
                self.store(place, bytes, Value::Unknown);
            }
        }
        for register in about.used_registers().iter().filter(|r| writes(r.access())) {
            self.set(register.register().full_register(), Value::Unknown);
        }
        if instruction.stack_pointer_increment() != 0 {
            self.registers[SP] = moved;
        }
    }

    fn move_stack(&mut self, instruction: &Instruction) {
        self.registers[SP] = self.registers[SP].plus(instruction.stack_pointer_increment().into());
    }

    fn get(&self, register: Register) -> Value {
        if register.is_gpr64() { self.registers[register.number()] } else { Value::Unknown }
    }

    fn set(&mut self, register: Register, value: Value) {
        let full = register.full_register();
        if full.is_gpr64() {
            // A part of it is none of the values that are known.
            self.registers[full.number()] = if register == full { value } else { Value::Unknown };
        }
    }

    /// What the instruction's memory operand points to.
    fn place(&self, instruction: &Instruction) -> Value {
        if instruction.memory_index() != Register::None {
            return Value::Unknown;
        }
        self.get(instruction.memory_base()).plus(instruction.memory_displacement64().cast_signed())
    }

    fn load(&self, place: Value) -> Value {
        slot(place).and_then(|slot| self.slots.get(&slot)).copied().unwrap_or(Value::Unknown)
    }

    /// Stores that go elsewhere are taken to leave the frame's kept words alone.
    fn store(&mut self, place: Value, bytes: i64, value: Value) {
        let Some((aligned, at)) = slot(place) else { return };
        let overlaps = |other: i64| other.saturating_add(WORD) > at && other < at.saturating_add(bytes);
        self.slots.retain(|(other_aligned, other), _| *other_aligned != aligned || !overlaps(*other));
        if value != Value::Unknown {
            self.slots.insert((aligned, at), value);
        }
    }
}

fn constant(instruction: &Instruction) -> Option<i64> {
    use OpKind::{Immediate8, Immediate8to64, Immediate32, Immediate32to64, Immediate64};
    let kind = instruction.op1_kind();
    let is = matches!(kind, Immediate8 | Immediate8to64 | Immediate32 | Immediate32to64 | Immediate64);
    is.then(|| instruction.immediate(1).cast_signed())
}
