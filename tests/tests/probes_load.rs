//! Every program loads and attaches; dropping the tracer leaves nothing behind.

use serial_test::file_serial;
use whyidle::capture::kernel::btf::Kernel;
use whyidle::capture::kernel::probes::PROBES;
use whyidle::capture::tracer::Config;
use whyidle::trace::ProbeStatus;
use whyidle_tests::privileged::{Child, attach, leaves_out, observe_with};

/// A program stays until its last run is over.
const TRIES: u32 = 200;

#[test]
#[file_serial(probes)]
fn every_program_this_kernel_can_have_is_attached() {
    let kernel = Kernel::running().expect("BTF");
    let tracer = attach(&Config::default());
    let statuses = tracer.probes();
    for ProbeStatus { name, attached, reason } in &statuses {
        println!("{name}: {}", if *attached { "attached" } else { reason });
    }
    for probe in PROBES {
        let status = statuses.iter().find(|s| s.name == probe.program);
        if probe.unless.is_some_and(|better| statuses.iter().any(|s| s.name == better && s.attached)) {
            assert!(status.is_none(), "not needed: {status:?}");
            continue;
        }
        match probe.requirements(&kernel) {
            Ok(()) => {
                let status = status.unwrap_or_else(|| panic!("{} has no status", probe.program));
                assert!(status.attached, "{}: {}", status.name, status.reason);
            }
            Err(reason) => {
                // A variant for other kernels has no line, everything else says why it is not there.
                if let Some(status) = status {
                    assert_eq!(status.reason, reason);
                } else {
                    assert!(
                        PROBES
                            .iter()
                            .any(|p| p.variant_of == Some(probe.program)
                                || probe.variant_of == Some(p.program))
                    );
                }
            }
        }
    }
}

#[test]
#[file_serial(probes)]
fn programs_are_far_from_the_verifiers_limit() {
    if !Kernel::running().expect("BTF").has_member("bpf_prog_info", "verified_insns") {
        // The programs are loaded all the same, so they are below the limit.
        leaves_out("bpf_prog_info.verified_insns: this kernel does not tell (5.16)");
        return;
    }
    let tracer = attach(&Config::default());
    let verified = tracer.verified();
    assert!(!verified.is_empty());
    for (name, instructions) in verified {
        println!("{name}: {instructions} instructions walked");
        // The kernel walks a million at most.
        assert!(instructions < 400_000, "{name}: {instructions}");
    }
}

#[test]
#[file_serial(probes)]
fn nothing_stays_attached() {
    let tracer = attach(&Config::default());
    let ids = tracer.program_ids();
    assert!(ids.len() >= 10, "{ids:?}");
    let loaded = || {
        let mut all = aya::programs::loaded_programs().filter_map(Result::ok).map(|p| p.id());
        all.any(|id| ids.contains(&id))
    };
    assert!(loaded(), "they are there while attached");
    drop(tracer);
    for _ in 0..TRIES {
        if !loaded() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("programs {ids:?} stayed");
}

#[test]
#[file_serial(probes)]
fn samples_can_be_off() {
    let tracer = attach(&Config { sample_hz: 0, ..Config::default() });
    let status = tracer.probes().into_iter().find(|s| s.name == "cpu_sample").expect("a status");
    assert!(!status.attached && !status.reason.is_empty());
}

#[test]
#[file_serial(probes)]
fn one_probe_can_be_taken_out() {
    let mut tracer = attach(&Config::default());
    let before = tracer.program_ids().len();
    assert!(tracer.detach_probe("cpu_sample", "too dear"));
    assert_eq!(tracer.program_ids().len(), before - 1);
    let status = tracer.probes().into_iter().find(|s| s.name == "cpu_sample").expect("a status");
    assert_eq!((status.attached, status.reason.as_str()), (false, "too dear"));
    assert!(!tracer.detach_probe("cpu_sample", "again"));
    assert!(!tracer.detach_probe("no such program", "never"));
}

#[test]
#[file_serial(probes)]
fn the_threshold_can_be_raised() {
    let child = Child::fork(|| (0..20).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(1))));
    let mut tracer = attach(&Config { sample_hz: 0, ..Config::default() });
    tracer.set_threshold_ns(u64::MAX).expect("set");
    let seen = observe_with(tracer, child);
    assert_eq!(seen.waits().filter(|w| !w.cut_start && !w.cut_end).count(), 0);
    assert!(seen.totals().map(|t| t.count).sum::<u64>() >= 20);
}
