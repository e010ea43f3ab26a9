//! The contenders that can take part on this machine, and the settings for all of them.

use crate::campaign::Plan;
use crate::campaign::once::disk_up;
use crate::campaign::session::Session;
use crate::contender::{self, Limits};
use crate::experiment::disk::DiskForm;
use crate::experiment::{Contender, Experiment, Under, is_in};
use crate::ground::janitor::Held;
use crate::ground::site::Site;
use crate::ground::{disk, throttle};
use anyhow::{Context, anyhow};
use std::path::Path;
use terapage_rig::device::Device;

/// The names of contenders that cannot take part, and the reason for each.
pub type LeftOut = (Vec<String>, Vec<(String, String)>);

/// The contenders that cannot take part, and why.
///
/// # Errors
/// The lab must stop, or a term cannot be calculated.
pub fn probe(session: &Session, plan: &Plan, image: &Path) -> anyhow::Result<LeftOut> {
    let (site, experiment) = (&session.site, &plan.experiment);
    let (mut left_out, mut why_of, mut unders) = (Vec::new(), Vec::new(), Vec::new());
    let mut data = 0;
    let mut memory = u64::MAX;
    for cell in experiment.cells() {
        let sizes = experiment.sizes_of(&cell)?;
        memory = memory.min(sizes.get("memory").copied().unwrap_or(u64::MAX / 4));
        data = data.max(sizes.get("data").copied().unwrap_or(0));
    }
    let limits = Limits { data, memory, block: None, options: Vec::new(), may_fit: true, places: Vec::new() };
    for one in experiment.all_contenders()? {
        if unders.contains(&one.under) {
            left_out.push(one.name);
            continue;
        }
        let mut answer = match (one.under, &session.far) {
            (Under::Far, None) => Err("no far store is named (--far, or --far URL)".to_owned()),
            (Under::Far, Some(far)) => match far.urls(one.servers.unwrap_or(1)) {
                Ok(_) => contender::probe(Under::Far, site, &limits)?,
                // Other contenders may need less.
                Err(why) => {
                    session.progress.say(&format!("left out: {}: {why}", one.name));
                    left_out.push(one.name.clone());
                    why_of.push((one.name, why));
                    continue;
                }
            },
            (under, _) => contender::probe(under, site, &limits)?,
        };
        match &one.disk {
            None if answer.is_err() => unders.push(one.under),
            Some(form) if answer.is_ok() => answer = probe_disk(site, experiment, &one, form, image)?,
            _ => {}
        }
        if let Err(reason) = answer {
            session.progress.say(&format!("left out: {}: {reason}", one.name));
            left_out.push(one.name.clone());
            why_of.push((one.name, reason));
        }
    }
    Ok((left_out, why_of))
}

/// Whether a contender's own disk is possible: sets it up, and removes it again.
fn probe_disk(
    site: &Site,
    experiment: &Experiment,
    contender: &Contender,
    form: &DiskForm,
    image: &Path,
) -> anyhow::Result<Result<(), String>> {
    let throttled =
        form.class.is_some() || site.ground.as_ref().is_some_and(|ground| ground.class().is_some());
    if throttled && let Err(error) = throttle::check() {
        return Ok(Err(error.to_string()));
    }
    let cell = experiment.cells().into_iter().find(|cell| is_in(&contender.only, cell));
    let Some(cell) = cell else { return Ok(Ok(())) };
    match disk_up(site, experiment, form, &cell, image).map(drop) {
        Ok(()) => Ok(Ok(())),
        Err(error) => match error.downcast::<disk::Error>() {
            Ok(disk::Error::Stopped(stopped)) => Err(stopped.into()),
            Ok(why) => Ok(Err(why.to_string())),
            Err(error) => Err(error),
        },
    }
}

/// The message that no contender takes part, with each reason once.
pub fn nobody(left_out: &[(String, String)]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for (_, why) in left_out {
        if !reasons.contains(&why.as_str()) {
            reasons.push(why);
        }
    }
    format!("no contender can take part: {}", reasons.join("; "))
}

/// Applies the device settings of the experiment.
///
/// # Errors
/// The device has no such setting, or refuses the value.
pub fn hold<'a>(site: &'a Site, experiment: &Experiment) -> anyhow::Result<Vec<Held<'a>>> {
    let mut all = Vec::new();
    for (name, value) in &experiment.settings {
        let device = Device::of(&site.directory);
        let device = device.ok_or_else(|| anyhow!("settings: {} has no device", site.directory.display()))?;
        let before =
            device.setting(name).ok_or_else(|| anyhow!("settings: {} has no {name}", device.name))?;
        let path = device.setting_path(name);
        let held = Held::set(&site.janitor, path, before, value);
        all.push(held.with_context(|| format!("settings: {name} = {value} of {}", device.name))?);
    }
    Ok(all)
}
