//! Prints the properties of a volume's requests: `properties NAME [REQUESTS]`.
use terapage_volumes::{CacheSize, Generator, Volume, measure};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let volume = Volume::by_name(&arguments.next().expect("a volume")).expect("a known volume");
    let requests = arguments.next().map_or(volume.requests.value, |n| n.parse().expect("requests"));
    let mut caches: Vec<CacheSize> = volume.hit_ratios.iter().map(|hit| hit.cache).collect();
    if caches.is_empty() {
        caches.push(CacheSize::Bytes(1 << 28));
    }
    let start = std::time::Instant::now();
    let sum: u64 =
        Generator::new(&volume, 1, 1.0).take(requests as usize).map(|request| request.offset).sum();
    let seconds = start.elapsed().as_secs_f64();
    println!("{:.1} M requests/s (check {sum:x})", requests as f64 / seconds / 1e6);
    println!("{:#?}", measure(Generator::new(&volume, 1, 1.0).take(requests as usize), &caches, 0));
}
