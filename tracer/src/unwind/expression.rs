//! The few expressions that compilers and linkers write for x86-64.

use gimli::{Encoding, EndianSlice, Expression, LittleEndian, Operation, Register};

use super::rule::Cfa;

pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

const BP: Register = Register(6);
const SP: Register = Register(7);
const IP: Register = Register(16);
/// Of the longest known.
const OPERATIONS: usize = 9;

fn operations(expression: Expression<Bytes>, encoding: Encoding) -> Option<Vec<Operation<Bytes>>> {
    let mut found = Vec::new();
    let mut rest = expression.operations(encoding);
    while let Some(operation) = rest.next().ok()? {
        if found.len() == OPERATIONS {
            return None;
        }
        found.push(operation);
    }
    Some(found)
}

/// The frame's address, where the expression is a known one.
pub(super) fn cfa(expression: Expression<Bytes>, encoding: Encoding) -> Option<Cfa> {
    use Operation::{And, Deref, Ge, Plus, PlusConstant, RegisterOffset, Shl, UnsignedConstant};
    match operations(expression, encoding)?.as_slice() {
        [RegisterOffset { register, offset, .. }] => match *register {
            SP => Some(Cfa::Sp(*offset)),
            BP => Some(Cfa::Bp(*offset)),
            _ => None,
        },
        [RegisterOffset { register, offset, .. }, Deref { size: 8, space: false, .. }, rest @ ..] => {
            let add = match rest {
                [] => 0,
                [PlusConstant { value }] => i64::try_from(*value).ok()?,
                _ => return None,
            };
            match *register {
                SP => Some(Cfa::AtSp(*offset, add)),
                BP => Some(Cfa::AtBp(*offset, add)),
                _ => None,
            }
        }
        [
            RegisterOffset { register: SP, offset: 8, .. },
            RegisterOffset { register: IP, offset: 0, .. },
            UnsignedConstant { value: 15 },
            And,
            UnsignedConstant { value },
            Ge,
            UnsignedConstant { value: 3 },
            Shl,
            Plus,
        ] => Some(Cfa::Stub(*value)),
        _ => None,
    }
}

/// Whether the expression is the address that the frame pointer holds.
pub(super) fn is_at_bp(expression: Expression<Bytes>, encoding: Encoding) -> bool {
    matches!(
        operations(expression, encoding).as_deref(),
        Some([Operation::RegisterOffset { register: BP, offset: 0, .. }])
    )
}
