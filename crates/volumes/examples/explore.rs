use terapage_hybrid::*;
use terapage_ssd::*;
use terapage_volumes::*;
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let get = |key: &str, default: f64| arguments.iter().find_map(|a| a.strip_prefix(&format!("{key}="))).map_or(default, |v| v.parse().unwrap());
    let n = get("n", 100000.0) as usize;
    for name in names() {
        let volume = Volume::by_name(name).unwrap();
        let scale = get("scale", 1.0);
        let n = n.min(volume.requests.value as usize);
        let run = |nand: &str| {
            let mut profile = Profile::by_name(nand).unwrap();
            if nand == "3d-ct-tlc" {
                profile.read_ns = vec![(get("read", 80.0) * 1e3) as u64];
                let unit = get("unit", 3.0) as u32;
                profile.write_unit = unit;
                profile.program_ns = vec![(get("program", 700.0) * 1e3 * f64::from(unit)) as u64];
            }
            let generator = Generator::new(&volume, 1, scale);
            let mut ssd = Config::new(profile, generator.span_bytes());
            ssd.channels = get("channels", 4.0) as u32;
            ssd.dies_per_channel = get("dies", 2.0) as u32;
            ssd.front = Front::instant();
            let bytes = (generator.span_bytes() as f64 * get("scm", 0.05)) as u64;
            let cache = CacheOptions { bytes, line_bytes: get("line", 4096.0) as u32, evict_bytes: get("evict", 16384.0) as u32, ..CacheOptions::default() };
            let mut setup = Setup::new(ssd, cache);
            setup.load = Load::Closed { depth: get("depth", 1.0) as u32 };
            setup.warm_up = (n / 2) as u64;
            let start = std::time::Instant::now();
            let o = simulate(&setup, generator.take(n).map(Ok::<_, std::convert::Infallible>)).unwrap();
            (o, start.elapsed().as_secs_f64())
        };
        let (base, seconds) = run("2d-fg-mlc");
        let (ct, _) = run("3d-ct-tlc");
        let share = |o: &Outcome| (o.nand_read_share(), o.nand_write_share());
        println!("{name:8} {:9.0} iops gain {:+6.2} %  rhit {:.3} whit {:.3} nand r {:.3} w {:.3}  WA {:.2} {:.2}  {seconds:.2} s", base.iops,
            (ct.iops / base.iops - 1.0) * 100.0, base.read_hit_ratio(), base.write_hit_ratio(), share(&base).0, share(&base).1, base.write_amplification(), ct.write_amplification());
    }
}
