use std::io::Write;
#[inline(never)]
fn work(depth: u32, words: &mut Vec<String>) -> usize {
    if depth == 0 {
        words.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| b.cmp(a)));
        return words.len();
    }
    std::hint::black_box(work(depth - 1, words)) + 1
}
#[inline(never)]
fn nap(depth: u32) -> u32 {
    if depth == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        return 0;
    }
    std::hint::black_box(nap(depth - 1)) + 1
}
fn main() {
    std::thread::spawn(|| loop { std::hint::black_box(nap(12)); });
    println!("ready");
    std::io::stdout().flush().unwrap();
    loop {
        let mut words: Vec<String> = (0..3000).map(|i| format!("{}", i * 7919 % 10007)).collect();
        words.sort();
        std::hint::black_box(work(20, &mut words));
    }
}
