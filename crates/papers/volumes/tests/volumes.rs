//! Compares the generators with what is known of their volumes.

use proptest::prelude::*;
use terapage_blocktrace::{Kind, Request};
use terapage_volumes::{CacheSize, Generator, Volume, VolumeError, measure, names};

/// Enough for every property to settle, and quick.
const REQUESTS: usize = 1_000_000;

fn requests(volume: &Volume, seed: u64) -> std::iter::Take<Generator> {
    Generator::new(volume, seed, 1.0).take(REQUESTS)
}

#[test]
fn reduced_traces_are_like_their_volumes() {
    for name in names() {
        let volume = Volume::by_name(name).unwrap();
        for seed in [1, 2] {
            let measured = measure(requests(&volume, seed), &[], 0);
            let want = volume.write_share.value;
            assert!((measured.write_share - want).abs() < 0.01, "{name}: {} writes", measured.write_share);
            let near = |what: &str, achieved: f64, target: f64| {
                assert!((achieved / target - 1.0).abs() < 0.05, "{name}: {what} {achieved}, not {target}");
            };
            near("mean bytes", measured.mean_bytes, volume.mean_bytes());
            near("bytes read", measured.read_bytes, volume.reads.mean_bytes.value);
            near("bytes written", measured.write_bytes, volume.writes.mean_bytes.value);
            let rate = volume.requests.value as f64 / volume.duration_s.value;
            // The mean of n times with variation cv has an error of cv / sqrt(n); five of these are
            // allowed.
            let spread = 5.0 * volume.inter_arrival_cv.value / (REQUESTS as f64).sqrt();
            assert!((measured.rate / rate - 1.0).abs() < spread, "{name}: {} requests/s", measured.rate);
        }
    }
}

#[test]
fn caches_hit_what_is_cited() {
    let volumes = names().into_iter().map(|name| Volume::by_name(name).unwrap());
    let mut checked = 0;
    for volume in volumes.filter(|volume| !volume.hit_ratios.is_empty()) {
        let caches: Vec<CacheSize> = volume.hit_ratios.iter().map(|hit| hit.cache).collect();
        // The largest volume needs longer to fill the cache, since nearly all of its requests hit.
        let n = if volume.requests.value > 50_000_000 { 6 * REQUESTS } else { 2 * REQUESTS };
        let measured = measure(Generator::new(&volume, 3, 1.0).take(n), &caches, n as u64 / 2);
        for (hit, achieved) in volume.hit_ratios.iter().zip(&measured.hit_ratios) {
            let error = (achieved[0] - hit.ratio.value).abs();
            assert!(
                error < 0.02,
                "{}: {:?} hits {}, not {}",
                volume.name,
                hit.cache,
                achieved[0],
                hit.ratio.value
            );
            checked += 1;
        }
    }
    assert_eq!(checked, 7);
}

#[test]
fn whole_traces_touch_the_objects_of_their_volumes() {
    for name in ["hm_0", "proj_0", "web_1", "src2_1"] {
        let volume = Volume::by_name(name).unwrap();
        let all = Generator::new(&volume, 1, 1.0).take(volume.requests.value as usize);
        let measured = measure(all, &[], 0);
        let ratio = measured.objects as f64 / volume.objects.value as f64;
        assert!((ratio - 1.0).abs() < 0.05, "{name}: {ratio} of the objects");
    }
}

#[test]
fn reads_and_writes_differ_in_locality() {
    let volume = Volume::by_name("hm_0").unwrap();
    let measured = measure(requests(&volume, 1), &[CacheSize::Bytes(1 << 28)], REQUESTS as u64 / 2);
    let [_, reads, writes] = measured.hit_ratios[0];
    assert!(writes > reads + 0.1, "reads {reads}, writes {writes}");
}

#[test]
fn scaled_volumes_keep_their_hit_ratio() {
    let volume = Volume::by_name("hm_0").unwrap();
    let hits = |scale: f64| {
        let size = CacheSize::Bytes((scale * (1 << 28) as f64) as u64);
        measure(Generator::new(&volume, 1, scale).take(REQUESTS), &[size], REQUESTS as u64 / 2).hit_ratios[0]
            [0]
    };
    assert!((hits(1.0) - hits(0.25)).abs() < 0.05, "{} and {}", hits(1.0), hits(0.25));
}

#[test]
fn requests_are_of_whole_sectors_in_order_of_time_within_the_span() {
    for name in names() {
        let generator = Generator::new(&Volume::by_name(name).unwrap(), 5, 0.1);
        let span = generator.span_bytes();
        let mut last = 0;
        for request in generator.take(100_000) {
            assert!(
                request.bytes > 0 && request.bytes % 512 == 0 && request.offset % 512 == 0,
                "{request:?}"
            );
            assert!(request.end() <= span && request.time_ns >= last, "{request:?}");
            assert!(matches!(request.kind, Kind::Read | Kind::Write));
            last = request.time_ns;
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_requests_everywhere() {
    let volume = Volume::by_name("prxy_0").unwrap();
    let some = |seed| Generator::new(&volume, seed, 1.0).take(10_000).collect::<Vec<Request>>();
    assert_eq!(some(1), some(1));
    assert_ne!(some(1), some(2));
}

#[test]
fn what_is_wrong_with_a_profile_is_said() {
    let error = Volume::by_name("prxy_9").unwrap_err().to_string();
    assert!(error.contains("prxy_9") && error.contains("src2_1"), "{error}");
    let text = include_str!("../profiles/hm_0.toml");
    let wrong = text.replace("value = 0.645", "value = 1.645");
    let error = Volume::parse(&wrong, "my.toml").unwrap_err();
    assert_eq!(error.to_string(), "my.toml: write_share is 1.645; a share is 0 to 1");
    let missing = text.replace("objects = {", "things = {");
    assert!(matches!(Volume::parse(&missing, "my.toml"), Err(VolumeError::Format { .. })));
}

proptest! {
    /// No profile makes the generator fail: each profile that passes the check gives requests.
    #[test]
    fn profiles_that_pass_give_requests(
        objects in 0..400u64, popular in -0.1..1.1f64, zipf in -0.5..5.0f64, scan in -0.1..1.1f64,
        run in 0.5..40.0f64, mean in 100.0..80_000.0f64, share in -0.1..1.1f64, written in -0.1..1.1f64,
    ) {
        let mut volume = Volume::by_name("hm_0").unwrap();
        volume.objects.value = objects;
        volume.write_share.value = share;
        volume.reads_of_written.value = written;
        for stream in [&mut volume.writes, &mut volume.reads] {
            stream.popular_share.value = popular;
            stream.zipf_exponent.value = zipf;
            stream.scan_share.value = scan;
            stream.run_objects.value = run;
            stream.mean_bytes.value = mean;
        }
        let text = toml::to_string(&volume).unwrap();
        if let Ok(volume) = Volume::parse(&text, "random.toml") {
            prop_assert_eq!(Generator::new(&volume, 1, 0.5).take(500).count(), 500);
        }
    }
}
