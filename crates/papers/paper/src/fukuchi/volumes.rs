//! `terapage paper run fukuchi-volumes`: synthetic stand-ins for the MSR Cambridge volumes.

use anyhow::Context;
use clap::Args;
use std::path::{Path, PathBuf};
use terapage_blocktrace::{Format, Request, Writer, WriterOptions};
use terapage_figures::{Sourced, map};
use terapage_report::{Origin, Parameter, Study, Table};
use terapage_sim::progress::Progress;
use terapage_sim::publish::{self, command_line};
use terapage_sim::show::Show;
use terapage_volumes::{CacheSize, Generator, Properties, Stream, Volume, measure, names};

/// The cache whose hit ratio is shown if the paper gives none for the volume.
const CACHE: CacheSize = CacheSize::Bytes(256 << 20);

/// The arguments of `terapage paper run fukuchi-volumes`.
#[derive(Args)]
#[command(after_help = "Examples:
  terapage paper run fukuchi-volumes
  terapage paper run fukuchi-volumes hm_0 --parameters
  terapage paper run fukuchi-volumes prxy_1 --requests 10000000 --seed 7 -o prxy_1.tera.zst
  terapage paper run fukuchi-volumes my-volume.toml

For another volume write a profile like those in crates/papers/volumes/profiles.")]
pub struct VolumeCommand {
    /// The name of a volume, or the file of a profile [default: all built-in volumes]
    volume: Option<String>,
    /// Number of requests [default: as many as the volume's trace has, at most 20 million]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Seed of the requests; another seed gives other requests of the same kind
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the requests as a trace; .gz, .zst and .xz compress
    #[arg(short, long, value_name = "FILE", requires = "volume", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// The format of the trace; only tera says that the trace is synthetic
    #[arg(long, value_name = "FORMAT", default_value = "tera", requires = "output")]
    to: Format,
    #[command(flatten)]
    show: Show,
}

/// A volume and the properties of its generated requests.
struct Achieved {
    volume: Volume,
    properties: Properties,
}

impl VolumeCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The volume is unknown or wrong, or the trace cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        self.show.check(self.volume.as_deref().map(Path::new))?;
        if let Some(path) = &self.output {
            publish::check(path, &[]).context("--output")?;
        }
        let volumes = match &self.volume {
            Some(name) => vec![find(name)?],
            None => names().into_iter().map(Volume::by_name).collect::<Result<_, _>>()?,
        };
        if let (Some(path), [volume]) = (&self.output, &volumes[..]) {
            self.write(volume, path)?;
        }
        let total = volumes.iter().map(|volume| self.requests(volume)).sum();
        let progress = Progress::new("measuring", total);
        let achieved = map(volumes.len(), |number| {
            let volume = &volumes[number];
            measure(progress.over(self.generate(volume)), &caches(volume), 0)
        });
        drop(progress);
        let measured = volumes.into_iter().zip(achieved);
        let all: Vec<Achieved> =
            measured.map(|(volume, properties)| Achieved { volume, properties }).collect();
        self.show.study(&study(&self, &all))
    }

    fn requests(&self, volume: &Volume) -> u64 {
        self.requests.unwrap_or(volume.requests.value.min(20_000_000))
    }

    fn generate(&self, volume: &Volume) -> impl Iterator<Item = Request> + use<> {
        let requests = usize::try_from(self.requests(volume)).unwrap_or(usize::MAX);
        Generator::new(volume, self.seed, 1.0).take(requests)
    }

    fn write(&self, volume: &Volume, path: &Path) -> anyhow::Result<()> {
        let options = WriterOptions {
            name: volume.name.clone(),
            comment: format!("synthetic, like MSR Cambridge {}, seed {}", volume.name, self.seed),
            synthetic: true,
            lossy: false,
        };
        let mut writer = Writer::create(path, self.to, &options)?;
        let progress = Progress::new("writing", self.requests(volume));
        for request in progress.over(self.generate(volume)) {
            writer.write(&request, &volume.name)?;
        }
        writer.finish()?;
        drop(progress);
        if self.to != Format::Tera {
            eprintln!(
                "terapage: {}: a trace of this format does not say that it is synthetic",
                path.display()
            );
        }
        Ok(())
    }
}

/// A built-in volume, or the volume in a file: any name with a dot or a slash is a file.
fn find(name: &str) -> anyhow::Result<Volume> {
    if !name.contains(['.', '/']) {
        return Ok(Volume::by_name(name)?);
    }
    let text = std::fs::read_to_string(name).with_context(|| name.to_owned())?;
    Ok(Volume::parse(&text, name)?)
}

fn caches(volume: &Volume) -> Vec<CacheSize> {
    let known: Vec<CacheSize> = volume.hit_ratios.iter().map(|hit| hit.cache).collect();
    if known.is_empty() { vec![CACHE] } else { known }
}

fn study(command: &VolumeCommand, all: &[Achieved]) -> Study {
    let summary = "Synthetic requests: made up by a generator. Its parameters are published, cited, fitted or estimated, as \
         each row says. They stand in for the MSR Cambridge traces; results with them are not results \
         about those traces.";
    let more = "An object is the data that begin at one byte, with the size of the request there. Hit ratios are those of an \
         LRU cache of whole objects, empty at first.";
    Study {
        title: match all {
            [one] => format!("Synthetic {}: {}", one.volume.name, one.volume.description),
            _ => "Synthetic volumes".to_owned(),
        },
        summary: vec![summary.to_owned(), more.to_owned()],
        command: command_line(),
        parameters: match all {
            [one] => parameters(&one.volume, command.seed),
            _ => vec![seed(command.seed)],
        },
        tables: match all {
            [one] => vec![details(one)],
            _ => vec![overview(all)],
        },
        ..Study::default()
    }
}

/// A row for each property of one volume.
fn details(achieved: &Achieved) -> Table {
    let (volume, found) = (&achieved.volume, &achieved.properties);
    let mut rows = Vec::new();
    let mut row = |name: &str, target: String, achieved: String, error: String, origin: &str| {
        rows.push(vec![name.to_owned(), target, achieved, error, origin.to_owned()]);
    };
    let relative = |achieved: f64, target: f64| format!("{:+.1} %", (achieved / target - 1.0) * 100.0);
    let requests = &volume.requests;
    row(
        "requests",
        requests.value.to_string(),
        found.requests.to_string(),
        part(found, volume),
        requests.origin.name(),
    );
    let share = &volume.write_share;
    let points = format!("{:+.2} points", (found.write_share - share.value) * 100.0);
    row("writes, %", percent(share.value), percent(found.write_share), points, share.origin.name());
    for (name, target, achieved, known) in sizes(volume, found) {
        let origin = known.map_or("from the two below", |known| known.origin.name());
        row(name, format!("{target:.0}"), format!("{achieved:.0}"), relative(achieved, target), origin);
    }
    let (objects, touched) = (&volume.objects, found.objects);
    let error = relative(touched as f64, objects.value as f64);
    row("objects", objects.value.to_string(), touched.to_string(), error, objects.origin.name());
    for (hit, achieved) in volume.hit_ratios.iter().zip(&found.hit_ratios) {
        let error = format!("{:+.3}", achieved[0] - hit.ratio.value);
        let (target, achieved) = (format!("{:.3}", hit.ratio.value), format!("{:.3}", achieved[0]));
        row(
            &format!("LRU hits, {}", cache_name(hit.cache)),
            target,
            achieved,
            error,
            hit.ratio.origin.name(),
        );
    }
    let none = || "-".to_owned();
    if volume.hit_ratios.is_empty() {
        let name = format!("LRU hits, {}", cache_name(CACHE));
        row(&name, none(), format!("{:.3}", found.hit_ratios[0][0]), none(), "nothing is known");
    }
    let cache = cache_name(caches(volume)[0]);
    let [_, reads, writes] = found.hit_ratios[0];
    row(&format!("reads alone, {cache}"), none(), format!("{reads:.3}"), none(), "result");
    row(&format!("writes alone, {cache}"), none(), format!("{writes:.3}"), none(), "result");
    let footprint = format!("{:.2}", found.footprint_bytes as f64 / 1e9);
    row("footprint, GB", none(), footprint, none(), "result");
    row("sequential, %", none(), percent(found.sequential_share), none(), "result of the runs");
    let (rate, seconds) = (volume.requests.value as f64 / volume.duration_s.value, &volume.duration_s);
    let error = relative(found.rate, rate);
    row(
        "requests a second",
        format!("{rate:.3}"),
        format!("{:.3}", found.rate),
        error,
        seconds.origin.name(),
    );
    let variation = &volume.inter_arrival_cv;
    let (target, achieved) = (format!("{:.2}", variation.value), format!("{:.2}", found.inter_arrival_cv));
    let error = relative(found.inter_arrival_cv, variation.value);
    row("variation of times between", target, achieved, error, variation.origin.name());
    Table {
        title: "Target and achieved".to_owned(),
        columns: ["property", "target", "synthetic", "error", "the target is"].map(str::to_owned).to_vec(),
        rows,
        note: String::new(),
    }
}

/// Mean sizes: the name, the target, the result, and the origin of the target if it is not
/// computed.
fn sizes<'a>(
    volume: &'a Volume,
    found: &Properties,
) -> [(&'static str, f64, f64, Option<&'a Sourced<f64>>); 3] {
    [
        ("mean bytes", volume.mean_bytes(), found.mean_bytes, volume.mean_bytes.as_ref()),
        (
            "mean bytes of reads",
            volume.reads.mean_bytes.value,
            found.read_bytes,
            Some(&volume.reads.mean_bytes),
        ),
        (
            "mean bytes of writes",
            volume.writes.mean_bytes.value,
            found.write_bytes,
            Some(&volume.writes.mean_bytes),
        ),
    ]
}

/// The share of the volume's requests that were generated.
fn part(found: &Properties, volume: &Volume) -> String {
    let share = found.requests as f64 / volume.requests.value as f64;
    if share == 1.0 { "0".to_owned() } else { format!("{:.1} % of them", share * 100.0) }
}

fn overview(all: &[Achieved]) -> Table {
    let both = |target: String, achieved: String| format!("{target} / {achieved}");
    let rows = all.iter().map(|Achieved { volume, properties }| {
        let hits = volume.hit_ratios.iter().zip(&properties.hit_ratios);
        let hits: Vec<String> = hits
            .map(|(hit, found)| both(format!("{:.3}", hit.ratio.value), format!("{:.3}", found[0])))
            .collect();
        let unknown = || format!("- / {:.3}", properties.hit_ratios[0][0]);
        vec![
            volume.name.clone(),
            both(percent(volume.write_share.value), percent(properties.write_share)),
            both(kilobytes(volume.mean_bytes()), kilobytes(properties.mean_bytes)),
            both(thousands(volume.objects.value), thousands(properties.objects)),
            hits.first().cloned().unwrap_or_else(unknown),
            hits.get(1).cloned().unwrap_or_else(|| "-".to_owned()),
            percent(properties.sequential_share),
        ]
    });
    let columns =
        ["volume", "writes, %", "mean kB", "1000 objects", "hits, 256 MiB", "hits, tenth", "sequential, %"];
    Table {
        title: "Target / synthetic".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        note: "Name a volume to see where each target is from. A tenth: as many objects as a tenth of all. At most 20 \
               million requests are measured (--requests), so that prxy_1 has not touched all of its objects."
            .to_owned(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

fn kilobytes(bytes: f64) -> String {
    format!("{:.2}", bytes / 1e3)
}

fn thousands(count: u64) -> String {
    format!("{:.1}", count as f64 / 1e3)
}

fn cache_name(cache: CacheSize) -> String {
    match cache {
        CacheSize::Bytes(bytes) => format!("{} MiB", bytes >> 20),
        CacheSize::Objects(objects) => format!("{objects} objects"),
    }
}

fn seed(seed: u64) -> Parameter {
    Parameter {
        name: "seed".to_owned(),
        value: seed.to_string(),
        unit: String::new(),
        origin: Origin::Chosen,
        source: "--seed".to_owned(),
    }
}

fn parameter<T>(name: &str, unit: &str, known: &Sourced<T>, value: String) -> Parameter {
    Parameter { unit: unit.to_owned(), ..Parameter::sourced(name, value, known) }
}

fn parameters(volume: &Volume, of_seed: u64) -> Vec<Parameter> {
    let share = |name: &str, known: &Sourced<f64>| parameter(name, "", known, known.value.to_string());
    let mut all = vec![
        seed(of_seed),
        parameter("requests", "", &volume.requests, volume.requests.value.to_string()),
        share("write share", &volume.write_share),
        parameter("objects", "", &volume.objects, volume.objects.value.to_string()),
        parameter("duration", "s", &volume.duration_s, volume.duration_s.value.to_string()),
        share("variation of times between requests", &volume.inter_arrival_cv),
        share("share of reads that ask for what was written", &volume.reads_of_written),
    ];
    if let Some(known) = &volume.mean_bytes {
        all.push(parameter("mean bytes", "bytes", known, known.value.to_string()));
    }
    for (kind, stream) in [("writes", &volume.writes), ("reads", &volume.reads)] {
        all.extend(stream_parameters(kind, stream));
    }
    all.extend(volume.hit_ratios.iter().map(|hit| {
        let name = format!("LRU hit ratio, {}", cache_name(hit.cache));
        parameter(&name, "", &hit.ratio, hit.ratio.value.to_string())
    }));
    all
}

fn stream_parameters(kind: &str, stream: &Stream) -> Vec<Parameter> {
    let named = |name: &str| format!("{kind}: {name}");
    let number =
        |name: &str, known: &Sourced<f64>| parameter(&named(name), "", known, known.value.to_string());
    let sizes: Vec<String> =
        stream.sizes.value.iter().map(|(bytes, weight)| format!("{bytes} x {weight}")).collect();
    vec![
        parameter(&named("mean bytes"), "bytes", &stream.mean_bytes, stream.mean_bytes.value.to_string()),
        parameter(&named("sizes x weights"), "bytes", &stream.sizes, sizes.join(", ")),
        number("share of the objects", &stream.object_share),
        number("popular share of these", &stream.popular_share),
        number("exponent of Zipf's law", &stream.zipf_exponent),
        number("share of requests that scan", &stream.scan_share),
        number("mean objects of a run", &stream.run_objects),
    ]
}
