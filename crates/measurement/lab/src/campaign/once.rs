//! One run of a contender: its disk, its options, its program with all names filled in.

use crate::campaign::{Campaign, name_of, text};
use crate::contender::{self, Limits, Outcome, contend, failed, far};
use crate::experiment::class::Class;
use crate::experiment::disk::DiskForm;
use crate::experiment::{Cell, Contender, Experiment, Passes, Under};
use crate::ground::chosen::Ground;
use crate::ground::disk::{self, Disk, Wanted};
use crate::ground::janitor::OwnedFile;
use crate::ground::runner::Finished;
use crate::ground::site::Site;
use crate::workload::Pass;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

impl Campaign<'_> {
    /// Runs the contender once. Also returns the hash of the output, if all outputs must be the
    /// same.
    ///
    /// # Errors
    /// The lab must stop, or a term cannot be calculated.
    pub fn once(&self, cell: &Cell, contender: &Contender) -> anyhow::Result<(Outcome, Option<String>)> {
        let (site, experiment) = (&self.session.site, &self.plan.experiment);
        let sizes = experiment.sizes_of(cell)?;
        let of = |name: &str| sizes.get(name).copied();
        let memory = of("memory").unwrap_or(u64::MAX / 4);
        let options = match self.options(cell, contender, &sizes)? {
            Ok(options) => options,
            Err(why) => return Ok((nothing(contender.under, why), None)),
        };
        let block = of("block");
        let data = of("data").unwrap_or(memory);
        let disk = match &contender.disk {
            Some(form) => match disk_up(site, experiment, form, cell, self.file.path()) {
                Ok(disk) => Some(disk),
                Err(error) => match error.downcast::<disk::Error>() {
                    Ok(disk::Error::Stopped(stopped)) => return Err(stopped.into()),
                    Ok(why) => return Ok((nothing(contender.under, why.to_string()), None)),
                    Err(error) => return Err(error),
                },
            },
            None => None,
        };
        let program = self.program(cell, contender, &sizes, disk.as_ref())?;
        let places = disk.as_ref().map(|disk| disk.places.clone()).unwrap_or_default();
        // A program that is larger than its memory and not paged, such as a static program, has no
        // figure.
        let limits = Limits { data, memory, block, options, may_fit: data <= memory, places };
        let by_time = experiment.program.passes == Passes::Time;
        let kept = match by_time {
            true => Some(OwnedFile::create(&site.janitor, site.path("out"), 0o600)?),
            false => None,
        };
        let output = kept.as_ref().map(|(_, file)| file.try_clone()).transpose()?;
        let passes = |finished: &Finished| match by_time {
            true => vec![Pass {
                pass: "time".into(),
                seconds: finished.seconds,
                bytes: data,
                threads: 1,
                ..Pass::default()
            }],
            false => finished.passes(),
        };
        let throttle = match &disk {
            Some(disk) => disk.throttle(),
            None => site.throttle(),
        };
        let mut outcome = contend((site, throttle), contender.under, program, &limits, output, passes)?;
        outcome.run.notes.extend(disk.iter().flat_map(|disk| disk.notes.iter().cloned()));
        outcome.run.notes.extend(self.not_throttled(contender.under));
        let hash = match kept {
            Some((_owned, file)) => text::hash(&site.stop, file)?.map(|hash| format!("{hash:032x}")),
            None => None,
        };
        Ok((outcome, hash))
    }

    /// Options of `terapage run`, or why there are none.
    fn options(
        &self,
        cell: &Cell,
        contender: &Contender,
        sizes: &BTreeMap<String, u64>,
    ) -> anyhow::Result<Result<Vec<OsString>, String>> {
        let experiment = &self.plan.experiment;
        let mut options = Vec::new();
        if let (Under::Far, Some(far)) = (contender.under, &self.session.far) {
            let count = contender.servers.unwrap_or(1);
            let urls = match far.urls(count) {
                Ok(urls) => urls,
                Err(why) => return Ok(Err(why)),
            };
            // Each server takes its part, so that the simple placement needs all of them.
            let part = far::part(experiment, cell, sizes, count)?;
            for url in urls {
                let url = match count {
                    1 => url.clone(),
                    _ => far::with_option(url, &format!("limit={part}")),
                };
                options.extend(["--store".into(), url.into()]);
            }
        }
        for option in &contender.options {
            options.push(experiment.filled(option, cell, sizes, &[])?.into());
        }
        Ok(Ok(options))
    }

    /// The part of a contender's I/O that escapes the limits of the chosen device.
    fn not_throttled(&self, under: Under) -> Option<String> {
        let throttle = self.session.site.ground.as_ref()?.throttle()?;
        let what = match under {
            Under::Swap | Under::Zswap | Under::Mglru => "swap-out",
            Under::Limit | Under::Mmap => "write-back from the page cache",
            Under::Memory | Under::Zram | Under::Terapage | Under::Files | Under::Far => return None,
        };
        (!throttle.whole).then(|| format!("not throttled: {what} (cgroups of version 1)"))
    }

    /// The program and its arguments, with names filled in.
    fn program(
        &self,
        cell: &Cell,
        contender: &Contender,
        sizes: &BTreeMap<String, u64>,
        disk: Option<&Disk>,
    ) -> anyhow::Result<(PathBuf, Vec<OsString>)> {
        let experiment = &self.plan.experiment;
        let words = contender.run.as_ref().unwrap_or(&experiment.program.run);
        let paths = [
            self.session.site.directory.display().to_string(),
            self.file.path().display().to_string(),
            self.text.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        ];
        let place = disk.and_then(|disk| disk.places.first());
        let place = place.map(|place| place.display().to_string()).unwrap_or_default();
        let others = [
            ("dir", paths[0].as_str()),
            ("file", &paths[1]),
            ("text", &paths[2]),
            ("contender", name_of(contender)),
            ("disk", &place),
        ];
        let mut all: Vec<OsString> = Vec::new();
        for word in words {
            if word == "{lab}" {
                all.push(self.session.site.program().into());
                all.extend(self.session.site.lab_arguments().iter().map(OsString::from));
                continue;
            }
            let filled = match experiment.program.verbatim {
                true => word.clone(),
                false => experiment.filled(word, cell, sizes, &others)?,
            };
            all.push(filled.into());
        }
        let program = all.remove(0);
        Ok((program.into(), all))
    }
}

/// A run without a result.
fn nothing(under: Under, why: String) -> Outcome {
    Outcome { run: failed(contender::of(under).name(), why), foreign_swap_bytes: 0 }
}

/// Sets up a contender's own disk.
///
/// # Errors
/// A [`disk::Error`], or a term that cannot be calculated.
pub fn disk_up(
    site: &Site,
    experiment: &Experiment,
    form: &DiskForm,
    cell: &Cell,
    image: &Path,
) -> anyhow::Result<Disk> {
    let named = form.class.as_deref().map(Class::find).transpose().map_err(disk::Error::Cannot)?;
    let wanted = Wanted {
        form,
        bytes: experiment.term("disk.size", &form.size, cell, &experiment.sizes_of(cell)?)?,
        scheduler: experiment.scheduler(form, cell)?,
        class: named.or(site.ground.as_ref().and_then(Ground::class)),
        profile: experiment.profile(cell),
        image,
    };
    Ok(Disk::up(site, &wanted)?)
}
