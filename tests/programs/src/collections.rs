//! Vec and HashMap filled and read by several threads. The argument is the number of entries.

use std::collections::HashMap;
use std::thread;

fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1_000_000);
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            thread::spawn(move || {
                let numbers: Vec<u64> = (0..n).map(|i| mix(i * 4 + worker)).collect();
                let mut map = HashMap::new();
                for (i, number) in numbers.iter().enumerate().step_by(8) {
                    map.insert(i as u64, vec![*number; 3]);
                }
                (numbers, map)
            })
        })
        .collect();
    // The joined threads' memory is read, changed and freed by this one.
    let mut total = 0u64;
    for (worker, handle) in workers.into_iter().enumerate() {
        let (mut numbers, map) = handle.join().expect("a worker panicked");
        for (i, values) in &map {
            assert_eq!(values.as_slice(), &[mix(i * 4 + worker as u64); 3]);
            total = total.wrapping_add(values[1] ^ i);
        }
        numbers.sort_unstable();
        assert!(numbers.is_sorted());
        total = numbers.iter().step_by(5).fold(total, |sum, number| mix(sum ^ number));
    }
    println!("checksum {total:016x}");
}
