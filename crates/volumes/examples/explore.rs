use terapage_volumes::*;
fn main() {
    let arguments: Vec<(String, String)> = std::env::args()
        .skip(1)
        .map(|a| {
            let (k, v) = a.split_once('=').unwrap();
            (k.to_owned(), v.to_owned())
        })
        .collect();
    // Settings with "ct:" are of 3D CT TLC alone.
    let (ct, all): (Vec<_>, Vec<_>) = arguments.into_iter().partition(|(k, _)| k.starts_with("ct:"));
    let ct: Vec<(String, String)> = ct.into_iter().map(|(k, v)| (k[3..].to_owned(), v)).collect();
    let mut jobs = Vec::new();
    for name in names() {
        for nand in ["2d-fg-mlc", "3d-ct-tlc"] {
            let mut settings = vec![("nand".to_owned(), nand.to_owned())];
            settings.extend(all.clone());
            if nand == "3d-ct-tlc" {
                settings.extend(ct.clone());
            }
            let mut case = Case::default();
            settings::apply(&mut case, &settings).unwrap();
            jobs.push((name, case));
        }
    }
    let mut out: Vec<Option<terapage_hybrid::Outcome>> = vec![None; 14];
    in_parallel(
        &jobs,
        2,
        |(name, case)| case.run(&Workload::synthetic(name).unwrap()).unwrap(),
        |i, o| {
            out[i] = Some(o);
            Ok::<_, ()>(())
        },
    )
    .unwrap();
    for (i, g) in published::GAINS.iter().enumerate() {
        let (b, c) = (out[2 * i].as_ref().unwrap(), out[2 * i + 1].as_ref().unwrap());
        println!(
            "{:8} {:9.0} iops gain {:+6.2} % ({:+.1})  rhit {:.3} whit {:.3} nand r {:.3} w {:.3}  WA {:.2} {:.2}  read us {:.1} {:.1} write us {:.1} {:.1}",
            g.volume,
            b.iops,
            (c.iops / b.iops - 1.0) * 100.0,
            g.percent,
            b.read_hit_ratio(),
            b.write_hit_ratio(),
            b.nand_read_share(),
            b.nand_write_share(),
            b.write_amplification(),
            c.write_amplification(),
            b.read_latency.mean_ns / 1e3,
            c.read_latency.mean_ns / 1e3,
            b.write_latency.mean_ns / 1e3,
            c.write_latency.mean_ns / 1e3
        );
    }
}
