//! Whole reports and drawings against files, and the laws every rendering keeps.
//! `INSTA_UPDATE=always cargo test -p whyidle --lib render::` rewrites the files.

use super::fit::width;
use super::{Style, WIDTH, escape, flame, json, pipeline, sample};
use crate::finding::Report;

const UNICODE: Style = Style { colour: false, unicode: true };
const ASCII: Style = Style { colour: false, unicode: false };

fn all() -> [(&'static str, Report); 8] {
    [
        ("slow_disk", sample::slow_disk()),
        ("slow_decode", sample::slow_decode()),
        ("healthy", sample::healthy()),
        ("no_device", sample::no_device()),
        ("heavy_losses", sample::heavy_losses()),
        ("hostile", sample::hostile()),
        ("many_devices", sample::many_devices()),
        ("ranks", pipeline::ranks()),
    ]
}

fn text(report: &Report, style: Style) -> String {
    super::text(report, style, WIDTH)
}

fn compare(name: &str, content: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, content));
}

#[test]
fn text_reports() {
    for (name, report) in all() {
        compare(&format!("{name}.text"), &text(&report, UNICODE));
    }
    compare("slow_disk.ascii", &text(&sample::slow_disk(), ASCII));
    compare("slow_disk.narrow", &super::text(&sample::slow_disk(), UNICODE, 60));
    compare("slow_disk.colour", &text(&sample::slow_disk(), Style { colour: true, unicode: true }));
}

#[test]
fn json_reports() {
    for (name, report) in all() {
        let text = json(&report).expect("a report serialises");
        compare(&format!("{name}.json"), &text);
        assert_eq!(serde_json::from_str::<Report>(&text).expect("it reads back"), report, "{name}");
    }
}

#[test]
fn flame_graphs() {
    for (name, report) in all() {
        let flame = flame::idle(&report);
        compare(&format!("{name}.folded"), &flame::folded(&flame));
        match flame::svg(&flame) {
            Ok(svg) => {
                assert_eq!(svg, flame::svg(&flame::idle(&report)).expect("it drew once"), "{name}");
                if name != "hostile" && name != "many_devices" {
                    compare(&format!("{name}.svg"), &without_script(&svg));
                }
            }
            Err(e) => assert_eq!(name, "no_device", "{e}"),
        }
    }
}

/// inferno's script is not ours to pin.
fn without_script(svg: &str) -> String {
    let start = svg.find("<script").expect("a script");
    let end = svg.find("</script>").expect("its end");
    format!("{}{}", &svg[..start], &svg[end + "</script>".len()..]).replace("><", ">\n<")
}

#[test]
fn every_page_is_narrow_and_plain() {
    for (name, report) in all() {
        for style in [UNICODE, ASCII] {
            let page = text(&report, style);
            assert_eq!(page, text(&report, style), "{name}: not the same twice");
            for line in page.lines() {
                assert!(width(line) <= WIDTH, "{name}: {line}");
                assert!(!line.ends_with(' '), "{name}: {line:?}");
                assert_eq!(escape(line), line, "{name}");
                assert!(style.unicode || line.is_ascii(), "{name}: {line}");
            }
        }
    }
}

#[test]
fn the_first_lines_answer_the_question() {
    let first = |report: &Report| {
        let page = text(report, ASCII);
        page.lines().take_while(|l| !l.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let disk = first(&sample::slow_disk());
    assert!(
        disk.starts_with(
            "GPU 0 stood idle 61.3 % of 30.0 s; 54 points of it waited for storage.read (file reads) under \
             /data/imagenet/train, worker processes of pid 4242 (python3)."
        ),
        "{disk}"
    );
    assert!(first(&sample::healthy()).starts_with("GPU 0 was busy 99.0 % of 30.0 s and idle 1.0 %;"));
    assert!(first(&sample::no_device()).starts_with("How long a GPU stood idle is not known: no GPU"));
    assert!(first(&sample::slow_decode()).contains("For 2.0 % it is not known."));
}

#[test]
fn losses_are_stated_either_way() {
    assert!(text(&sample::slow_disk(), ASCII).contains("No record was lost."));
    let lossy = text(&sample::heavy_losses(), ASCII);
    assert!(lossy.contains("2,201,874 records lost"), "{lossy}");
    assert!(lossy.contains("2 of 6 probes not attached"), "{lossy}");
    assert!(!lossy.contains("No record was lost."));
}

#[test]
fn a_hostile_name_stays_in_its_place() {
    let page = text(&sample::hostile(), UNICODE);
    assert!(!page.lines().any(|l| l.starts_with("GPU 0 was busy 100")), "{page}");
    let svg = flame::svg(&flame::idle(&sample::hostile())).expect("it draws");
    assert!(!svg.contains("<script>alert"), "a name became an element");
    assert!(svg.contains("&lt;script&gt;alert(1)"));
    let folded = flame::folded(&flame::idle(&sample::hostile()));
    assert_eq!(folded.lines().count(), 2, "{folded}");
}

#[test]
fn the_ledger_s_lines_are_in_the_flame_graph_to_the_nanosecond() {
    for (name, report) in all() {
        let idle: u64 = report.gpus.iter().map(|g| g.idle_ns).sum();
        let folded = flame::folded(&flame::idle(&report));
        let sum: u64 = folded
            .lines()
            .map(|l| l.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).expect("a weight"))
            .sum();
        assert_eq!(sum, idle, "{name}");
    }
}

#[test]
fn workers_of_one_pool_share_their_client_s_frame() {
    let folded = flame::folded(&flame::idle(&sample::slow_decode()));
    let shared = "GPU 0 idle;python3: waits for pt_data_worker (read of a pipe);";
    assert_eq!(folded.lines().filter(|l| l.starts_with(shared)).count(), 2, "{folded}");
}

#[test]
fn stacks_that_stop_early_are_counted() {
    let mut report = sample::slow_disk();
    for link in &mut report.gpus[0].causes[1].chain {
        link.stack.push("[no unwind table: libjpeg.so.62]".to_owned());
    }
    let flame = flame::idle(&report);
    assert_eq!((flame.stacked_ns, flame.complete_ns), (17_730 * sample::MS, 16_230 * sample::MS));
    assert!(flame.subtitle().ends_with("complete stacks for 91.5 %"), "{}", flame.subtitle());
}

#[test]
fn an_interrupt_at_the_end_is_no_worker() {
    let mut report = sample::healthy();
    report.gpus[0].causes[0].chain.push(sample::link(0, 0, "", "interrupt", "nvme0n1 finished", &[]));
    let page = text(&report, ASCII);
    assert!(page.lines().take(2).any(|l| l.contains("pid 4242 (python3)")), "{page}");
    assert!(!page.contains("worker processes"), "{page}");
    assert!(page.contains("unnamed (no thread) interrupt: nvme0n1 finished"), "{page}");
}
