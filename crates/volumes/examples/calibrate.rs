//! Prints what a volume's generator achieves: `calibrate NAME [REQUESTS] [table.field=value ...]`.
use terapage_volumes::{CacheSize, Generator, Volume, measure};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "hm_0".to_owned());
    let mut volume = Volume::by_name(&name).unwrap();
    let requests = arguments.next().map_or(volume.requests.value, |n| n.parse().unwrap());
    for setting in arguments {
        let (field, value) = setting.split_once('=').unwrap();
        let value: f64 = value.parse().unwrap();
        let (stream, field) = field.split_once('.').unwrap();
        let stream = if stream == "w" { &mut volume.writes } else { &mut volume.reads };
        match field {
            "z" => stream.zipf_exponent.value = value,
            "pop" => stream.popular_share.value = value,
            "scan" => stream.scan_share.value = value,
            "share" => stream.object_share.value = value,
            "run" => stream.run_objects.value = value,
            _ => panic!("{field}"),
        }
    }
    let mut caches: Vec<CacheSize> = volume.hit_ratios.iter().map(|hit| hit.cache).collect();
    caches.push(CacheSize::Bytes(1 << 28));
    let start = std::time::Instant::now();
    let generator = Generator::new(&volume, 1, 1.0);
    let built = start.elapsed();
    println!("span {:.3} GB", generator.span_bytes() as f64 / 1e9);
    let p = measure(generator.take(requests as usize), &caches, 0);
    println!("{p:#?}");
    for hit in &volume.hit_ratios {
        println!("target {:?} {}", hit.cache, hit.ratio.value);
    }
    println!("want writes {} mean {} ; built in {built:?}, all {:?}", volume.write_share.value, volume.mean_bytes(), start.elapsed());
}
