//! Laws for any report at all, not only for those that analysis would write.

use proptest::prelude::*;

use super::fit::width;
use super::{Style, WIDTH, escape, flame, json, sample, text};
use crate::cause::{Cause, Culprit, CulpritKind, Link, Mechanism, Stage};
use crate::finding::{
    Answer, Collectives, Finding, Gpu, LossLine, Placed, ProbeLine, Report, Unwatched, Window,
};

fn name() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-z/ ;]{0,300}", Just("\u{1b}[1m\n42".to_owned())]
}

prop_compose! {
    fn link()(comm in name(), state in name(), what in name(), detail in proptest::option::of(name()),
              stack in prop::collection::vec(name(), 0..4), tid: u32, pid: u32) -> Link {
        Link { tid, pid, comm, state, what, detail, processes: 1, stack }
    }
}

prop_compose! {
    fn cause()(ns: u64, gain_ns: u64, count: u64, chain in prop::collection::vec(link(), 0..14),
               note in proptest::option::of(name()), culprit in proptest::option::of(name()),
               mechanism in prop::sample::select(vec![Mechanism::StorageRead, Mechanism::Unexplained,
                   Mechanism::NoDemand, Mechanism::ScheduleOversubscribed])) -> Cause {
        Cause {
            mechanism, leaf: Mechanism::StorageRead, stage: Stage::Storage, ns, gain_ns, count, pid: None,
            culprit: culprit.map(|name| Culprit { kind: CulpritKind::Process, name }), chain, note,
        }
    }
}

prop_compose! {
    fn gpu()(index in 0u32..9, name in name(), uuid in name(), words in name(), figures: [u64; 8], collective_ns: Option<u64>,
             causes in prop::collection::vec(cause(), 0..4),
             unknown_reasons in prop::collection::vec(name(), 0..3)) -> Gpu {
        let [start_ns, window_ns, busy_ns, idle_ns, unknown_ns, drained_ns, bounded_ns, inferred_ns] = figures;
        Gpu {
            index, uuid, name, start_ns, window_ns, busy_ns, idle_ns, unknown_ns, collective_ns,
            placed: Placed { drained_ns, bounded_ns, inferred_ns }, causes, unknown_reasons,
            launches_per_second: None,
            unwatched: Unwatched::default(),
            collectives: Some(Collectives { unknown_reason: Some(words), ..Collectives::default() }),
            launches: None,
            copies: None,
        }
    }
}

prop_compose! {
    fn report()(gpus in prop::collection::vec(gpu(), 0..4), start_ns: u64, end_ns: u64,
                words in prop::collection::vec(name(), 6), counts: [u64; 4]) -> Report {
        let mut report = sample::heavy_losses();
        report.gpus = gpus;
        report.window = Window { start_ns, end_ns };
        report.findings = vec![Finding {
            mechanism: Mechanism::StorageRead, gpu: 3, title: words[0].clone(), gain_ns: counts[0],
            ns: counts[1], evidence: words.clone(), remedy: words[1].clone(),
        }];
        report.losses.push(LossLine { class: words[2].clone(), cpu: Some(1), cause: words[3].clone(),
            count: counts[2], ns_at_risk: counts[3] });
        report.probes.push(ProbeLine { name: words[4].clone(), attached: false, reason: words[5].clone() });
        report.questions.push(Answer { question: words[0].clone(), known: counts[0] % 2 == 0, text: words[1].clone() });
        report.notes.clone_from(&words);
        report.waits.clone_from(&words);
        report.host.command.clone_from(&words[3]);
        report
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_report_fits_the_page(report in report(), unicode: bool, columns in 60_usize..=WIDTH) {
        for line in text(&report, Style { colour: false, unicode }, columns).lines() {
            prop_assert!(width(line) <= columns, "{line}");
            prop_assert_eq!(escape(line), line);
        }
    }

    #[test]
    fn colours_change_nothing_but_colours(report in report()) {
        let plain = text(&report, Style { colour: false, unicode: true }, WIDTH);
        let mut coloured = text(&report, Style { colour: true, unicode: true }, WIDTH);
        while let Some(start) = coloured.find('\u{1b}') {
            let end = coloured[start..].find('m').expect("an SGR sequence ends in m") + start;
            coloured.replace_range(start..=end, "");
        }
        prop_assert_eq!(plain, coloured.lines().map(|l| l.trim_end().to_owned() + "\n").collect::<String>());
    }

    #[test]
    fn any_report_survives_json(report in report()) {
        let text = json(&report).expect("it serialises");
        prop_assert!(text.ends_with('\n'));
        prop_assert!(text.chars().all(|c| c == '\n' || !escape::unsafe_to_print(c)));
        prop_assert_eq!(serde_json::from_str::<Report>(&text).expect("it reads back"), report);
    }

    #[test]
    fn any_report_draws(report in report()) {
        let flame = flame::idle(&report);
        let lines = flame::folded(&flame);
        for line in lines.lines() {
            let (_, weight) = line.rsplit_once(' ').expect("a weight");
            prop_assert!(weight.parse::<u64>().is_ok(), "{line}");
        }
        match flame::svg(&flame) {
            Ok(svg) => prop_assert!(svg.ends_with("</svg>")),
            Err(_) => prop_assert_eq!(lines, ""),
        }
    }
}
