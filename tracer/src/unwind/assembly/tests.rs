use proptest::prelude::*;
use tracer_ebpf::wire::unwind::rule;

use super::*;
use crate::unwind::rule::{Cfa, Frame, packed};

const AT: u64 = 0x1000;

/// Rule of each of the function's instructions, which have these bytes.
fn rules(instructions: &[&[u8]]) -> Vec<u32> {
    let found = stretches(&instructions.concat(), AT);
    let mut at = AT;
    let mut rules = Vec::new();
    for instruction in instructions {
        let stretch = found.iter().find(|s| (s.start..s.end).contains(&at));
        rules.push(stretch.map_or(rule::NONE, |s| s.rule));
        at += instruction.len() as u64;
    }
    rules
}

#[test]
fn pushes_and_pops_are_counted() {
    let found = rules(&[
        b"\x53",                 // push rbx
        b"\x55",                 // push rbp
        b"\x48\x83\xec\x20",     // sub rsp, 32
        b"\x48\x31\xed",         // xor rbp, rbp
        b"\x48\x89\x6c\x24\x08", // mov [rsp + 8], rbp
        b"\x85\xff",             // test edi, edi
        b"\x75\xfc",             // jne to the test
        b"\x48\x83\xc4\x20",     // add rsp, 32
        b"\x5d",                 // pop rbp
        b"\x5b",                 // pop rbx
        b"\xc3",                 // ret
    ]);
    let kept = Frame::Below(24);
    let inside = packed(Cfa::Sp(56), kept);
    let expected = [
        packed(Cfa::Sp(8), Frame::Same),
        packed(Cfa::Sp(16), Frame::Same),
        packed(Cfa::Sp(24), Frame::Same),
        packed(Cfa::Sp(56), Frame::Same),
        inside,
        inside,
        inside,
        inside,
        packed(Cfa::Sp(24), kept),
        packed(Cfa::Sp(16), Frame::Same),
        packed(Cfa::Sp(8), Frame::Same),
    ];
    assert_eq!(found, expected);
}

/// What every function of `libjpeg` that needs aligned memory begins and ends with.
#[test]
fn an_aligned_frame_is_found_by_the_word_that_leads_back() {
    let found = rules(&[
        b"\x55",                 // push rbp
        b"\x48\x89\xe0",         // mov rax, rsp
        b"\x48\x83\xec\x04",     // sub rsp, 4
        b"\x48\x83\xe4\xe0",     // and rsp, -32
        b"\x48\x89\x04\x24",     // mov [rsp], rax
        b"\x48\x89\xe5",         // mov rbp, rsp
        b"\x48\x8d\x65\xc0",     // lea rsp, [rbp - 64]
        b"\x41\x52",             // push r10
        b"\x66\x0f\x7f\x45\xc0", // movdqa [rbp - 64], xmm0
        b"\x41\x5a",             // pop r10
        b"\x48\x89\xec",         // mov rsp, rbp
        b"\x5c",                 // pop rsp
        b"\x5d",                 // pop rbp
        b"\xc3",                 // ret
    ]);
    let (pushed, aligned) = (Frame::Below(16), packed(Cfa::AtBp(0, 16), Frame::Below(16)));
    let expected = [
        packed(Cfa::Sp(8), Frame::Same),
        packed(Cfa::Sp(16), Frame::Same),
        packed(Cfa::Sp(16), Frame::Same),
        rule::NONE,
        rule::NONE,
        packed(Cfa::AtSp(0, 16), Frame::Same),
        aligned,
        aligned,
        aligned,
        aligned,
        aligned,
        aligned,
        packed(Cfa::Sp(16), pushed),
        packed(Cfa::Sp(8), Frame::Same),
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_leaves_the_stack_another_than_it_was_has_no_rules() {
    assert_eq!(rules(&[b"\x53", b"\xc3"]), [rule::NONE; 2]);
    assert_eq!(rules(&[b"\x5d", b"\xc3"]), [rule::NONE; 2]);
    // mov rbp, rdi; ret
    assert_eq!(rules(&[b"\x48\x89\xfd", b"\xc3"]), [rule::NONE; 2]);
}

#[test]
fn where_a_table_leads_is_not_taken_for_a_function() {
    // push rbx; je; jmp [rax]; pop rbx; ret
    let mut code = b"\x53\x74\x02\xff\x20\x5b\xc3".to_vec();
    code.resize(16, 0x90);
    // What it may jump to: pop rbx; ret
    code.extend_from_slice(b"\x5b\xc3");
    let found = stretches(&code, AT);
    assert_eq!(found.iter().map(|s| s.end - AT).max(), Some(7), "{found:?}");
}

#[test]
fn one_function_comes_after_the_other() {
    let mut code = b"\x53\x5b\xc3".to_vec();
    code.resize(32, 0x90);
    code.extend_from_slice(b"\x55\x5d\xc3");
    let found = stretches(&code, AT);
    let starts: Vec<u64> = found.iter().map(|s| s.start - AT).collect();
    assert_eq!(starts, [0, 1, 2, 32, 33, 34]);
    assert!(found.iter().all(|s| s.rule != rule::NONE));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn code_may_be_anything(bytes in prop::collection::vec(any::<u8>(), 0..4000), address in any::<u64>()) {
        for pair in stretches(&bytes, address).windows(2) {
            prop_assert!(pair[0].start < pair[1].start);
        }
    }
}
