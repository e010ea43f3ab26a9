//! The findings of the report on SCSI and NVMe, and their explanations, in the model.

use terapage_stack::*;

fn findings(off: &[Mechanism]) -> Findings {
    let experiment = Experiment {
        mechanisms: off.iter().copied().collect(),
        seeds: 1,
        measure_ns: 15_000_000,
        ..Experiment::paper()
    };
    experiment.findings(&|| {}).unwrap()
}

#[test]
fn the_published_findings_are_there() {
    let found = findings(&[]);
    assert!((1.7..=2.3).contains(&found.ratio_high), "{found:?}");
    assert!(found.scsi_peak_us > 1.08 * found.scsi_low_us, "{found:?}");
    assert!((600..=1000).contains(&found.scsi_peak_kiops), "{found:?}");
    assert!(found.scsi_last_us < 0.97 * found.scsi_peak_us, "{found:?}");
    assert!(found.scsi_last_kiops >= 1200 && found.scsi_last_multiplicity >= 4, "{found:?}");
    assert!((0.75..1.25).contains(&found.nvme_change), "{found:?}");
    assert!((50.0..110.0).contains(&found.gap_kiops), "{found:?}");
}

#[test]
fn without_what_explains_them_they_are_not() {
    let all = findings(&[]);
    let rise = |found: &Findings| found.scsi_peak_us / found.scsi_low_us;
    assert!(rise(&findings(&[Mechanism::HostLock])) < rise(&all), "the host's lock makes busy time rise");
    assert!(rise(&findings(&[Mechanism::Smt])) < rise(&all), "siblings make busy time rise");
    let alone = findings(&[Mechanism::CacheTransfer]);
    assert!(alone.ratio_high < all.ratio_high - 0.1, "lines that move are part of the ratio");
}
