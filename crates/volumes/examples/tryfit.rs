use terapage_volumes::*;
fn main() {
    let mut base = Case::default();
    base.requests = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut plan = fit::Plan::new(base, 2);
    plan.calls_first = std::env::args().nth(2).unwrap().parse().unwrap();
    plan.calls = std::env::args().nth(3).unwrap().parse().unwrap();
    let workloads: Vec<Workload> = names().into_iter().map(|n| Workload::synthetic(n).unwrap()).collect();
    let start = std::time::Instant::now();
    let mut n = 0u64;
    let f = fit::fit(&plan, &workloads, || n += 1).unwrap();
    println!("{:#?}", f.structures.iter().map(|s| format!("{:?}", s)).collect::<Vec<_>>());
    println!(
        "{:?} {:?}\n{:?}\n{:?}\nsq {}\n{:?}\n{:?}\n{:?}",
        f.structure, f.values, f.uncertainties, f.gains, f.squares, f.jacobian, f.correlations, f.readings
    );
    println!("{n} of {} sims in {:?}", plan.simulations(), start.elapsed());
}
