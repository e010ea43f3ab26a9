//! Searches for the locality of a volume's writes that reproduces its known hit ratios, and prints
//! it: `calibrate NAME REQUESTS CALLS`. The result goes into the profile.
use terapage_volumes::{CacheSize, Generator, Volume, measure, minimum};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut volume = Volume::by_name(&arguments.next().expect("a volume")).expect("a known volume");
    let requests: usize = arguments.next().map_or(1_000_000, |n| n.parse().expect("requests"));
    let calls = arguments.next().map_or(40, |n| n.parse().expect("calls"));
    let caches: Vec<CacheSize> = volume.hit_ratios.iter().map(|hit| hit.cache).collect();
    let targets: Vec<f64> = volume.hit_ratios.iter().map(|hit| hit.ratio.value).collect();
    let whole = requests as u64 >= volume.requests.value;
    let both = ["zipf_exponent", "popular_share", "scan_share"];
    let writes = &volume.writes;
    let start = [writes.zipf_exponent.value, writes.popular_share.value.ln(), writes.scan_share.value.ln()];
    let bounds = [(0.3, 1.4), (0.02f64.ln(), 0.0), (0.002f64.ln(), 0.4f64.ln())];
    let mut achieved = Vec::new();
    let found = minimum(&bounds, &start, 0.15, 2e-3, calls, |point| {
        let writes = &mut volume.writes;
        writes.zipf_exponent.value = point[0];
        writes.popular_share.value = point[1].exp();
        writes.scan_share.value = point[2].exp();
        let warm_up = if whole { 0 } else { requests as u64 / 2 };
        let measured = measure(Generator::new(&volume, 1, 1.0).take(requests), &caches, warm_up);
        achieved = measured.hit_ratios.iter().map(|hits| hits[0]).collect();
        achieved.iter().zip(&targets).map(|(achieved, target)| (achieved - target).powi(2)).sum()
    });
    println!("{} after {} calls: error {:.2e}", volume.name, found.calls, found.value);
    for (name, value) in both.iter().zip([found.point[0], found.point[1].exp(), found.point[2].exp()]) {
        println!("  writes.{name} = {value:.4}");
    }
    println!("  last tried {achieved:.4?}, targets {targets:.4?}");
}
