//! A Rust program for musl: a vector that is sorted, a map, threads. Usage: hosted NUMBERS

use std::collections::BTreeMap;

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut numbers: Vec<u64> = (0..count).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).collect();
    let sums: Vec<u64> = std::thread::scope(|scope| {
        let parts = numbers.chunks(count as usize / 4 + 1);
        let threads: Vec<_> = parts.map(|part| scope.spawn(|| part.iter().sum::<u64>())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    numbers.sort_unstable();
    let names: BTreeMap<u64, String> = numbers.iter().step_by(50).map(|&n| (n, n.to_string())).collect();
    println!("{sums:?} {} {:?} {:?}", numbers[numbers.len() / 2], names.len(), names.iter().next());
}
