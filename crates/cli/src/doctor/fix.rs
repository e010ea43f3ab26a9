//! `terapage doctor --fix`: does what the doctor advises, and says how to undo it.

use anyhow::{Context, bail};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// The group that may open the device.
const GROUP: &str = "userfaultfd";
const DEVICE: &str = "/dev/userfaultfd";
const RULES: &str = "/etc/udev/rules.d";
const RULE_FILE: &str = "/etc/udev/rules.d/70-userfaultfd.rules";
const SETTINGS: &str = "/etc/sysctl.d";
const SETTINGS_FILE: &str = "/etc/sysctl.d/60-terapage.conf";
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The command that does what is missing: by the whole path of this one where sudo, which has a
/// path of its own, would not find it.
pub fn command() -> String {
    const FOUND_BY_SUDO: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/usr/sbin"];
    let own = std::env::current_exe().unwrap_or_default();
    let is_found =
        own.parent().is_none_or(|place| FOUND_BY_SUDO.iter().any(|known| place == Path::new(known)));
    let name = if is_found { "terapage".to_owned() } else { own.display().to_string() };
    format!("sudo {name} doctor --fix")
}

/// Whether there is a device that can be given to a group.
pub fn has_device() -> bool {
    fs::metadata(DEVICE).is_ok_and(|found| found.file_type().is_char_device())
}

/// One change of the machine.
struct Step {
    /// What was done, in words that follow "done".
    what: String,
    /// The command that reverts the step.
    undo: String,
    act: Box<dyn FnOnce() -> anyhow::Result<()>>,
}

impl Step {
    fn new(what: String, undo: String, act: impl FnOnce() -> anyhow::Result<()> + 'static) -> Step {
        Step { what, undo, act: Box::new(act) }
    }
}

/// Does the missing steps, or with `dry` only names them. Returns what to print.
///
/// # Errors
/// The user is not root, or a step fails: the steps before it are reported, and remain.
pub fn fix(dry: bool) -> anyhow::Result<String> {
    if !dry && !rustix::process::geteuid().is_root() {
        bail!("--fix changes the machine, so it needs root (try: sudo terapage doctor --fix, or --dry-run)");
    }
    let steps = steps();
    let mut text = String::new();
    if steps.is_empty() {
        text += "nothing has to be fixed for this machine's users\n";
    }
    for step in steps {
        if !dry && let Err(error) = (step.act)() {
            crate::print(&text)?;
            return Err(error.context(format!("--fix: {}", step.what)));
        }
        let done = if dry { "would" } else { "done" };
        let _ = writeln!(text, "{done:<8} {}\n{:<8} undo: {}", step.what, "", step.undo);
    }
    if !dry {
        text += "Users who were added to a group log in again.\n";
    }
    Ok(text + "\n")
}

/// What is missing.
fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    match fs::metadata(DEVICE) {
        Ok(found) if has_device() => for_group(&found, &mut steps),
        _ => steps.extend(setting("vm.unprivileged_userfaultfd", &["0"], "1")),
    }
    steps.extend(setting("kernel.io_uring_disabled", &["1", "2"], "0"));
    if fs::read_to_string(HUGE_PAGES).is_ok_and(|text| text.contains("[never]")) {
        steps.push(Step::new(
            format!("{HUGE_PAGES}: madvise (was never), until the next start"),
            format!("echo never > {HUGE_PAGES}"),
            || Ok(fs::write(HUGE_PAGES, "madvise")?),
        ));
    }
    steps
}

/// Gives the device to a group, now and at the next start, and puts the user of `sudo` into it.
fn for_group(found: &fs::Metadata, steps: &mut Vec<Step>) {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let (gid, members) = group(&groups, GROUP).unzip();
    let everybody_may = found.mode() & 0o006 == 0o006;
    if everybody_may || setting_is("vm.unprivileged_userfaultfd", "1") {
        return;
    }
    if gid.is_none() {
        steps.push(Step::new(format!("the group {GROUP} is made"), format!("groupdel {GROUP}"), || {
            run("groupadd", &["-r", GROUP])
        }));
    }
    let user = std::env::var("SUDO_USER").ok().filter(|user| !user.is_empty() && user != "root");
    if let Some(user) = user.filter(|user| !members.unwrap_or_default().contains(user)) {
        let (what, undo) = (format!("{user} is put into the group"), format!("gpasswd -d {user} {GROUP}"));
        steps.push(Step::new(what, undo, move || run("usermod", &["-aG", GROUP, &user])));
    }
    if Path::new(RULES).is_dir() && !Path::new(RULE_FILE).exists() {
        steps.push(Step::new(
            format!("{RULE_FILE} gives the device to the group at each start"),
            format!("rm {RULE_FILE}"),
            || {
                let rule = format!("KERNEL==\"userfaultfd\", GROUP=\"{GROUP}\", MODE=\"0660\"\n");
                fs::write(RULE_FILE, rule)?;
                // If udev does not run, the next step has the same effect.
                run("udevadm", &["control", "--reload"]).ok();
                Ok(())
            },
        ));
    }
    let (was_gid, was_mode) = (found.gid(), found.mode() & 0o777);
    if gid == Some(was_gid) && was_mode & 0o060 == 0o060 {
        return;
    }
    steps.push(Step::new(
        format!("{DEVICE}: group {GROUP}, mode 660 (was group {was_gid}, mode {was_mode:o})"),
        format!("chgrp {was_gid} {DEVICE}; chmod {was_mode:o} {DEVICE}"),
        || {
            let groups = fs::read_to_string("/etc/group")?;
            let (gid, _) = group(&groups, GROUP).context("the group is not in /etc/group")?;
            chown(DEVICE, None, Some(gid))?;
            Ok(fs::set_permissions(DEVICE, fs::Permissions::from_mode(0o660))?)
        },
    ));
}

/// The number and the members of a group in the text of /etc/group.
fn group(groups: &str, name: &str) -> Option<(u32, Vec<String>)> {
    let mut lines = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let fields = lines.find(|fields| fields.first() == Some(&name) && fields.len() >= 4)?;
    let members = fields[3].split(',').filter(|member| !member.is_empty());
    Some((fields[2].parse().ok()?, members.map(str::to_owned).collect()))
}

fn path_of(setting: &str) -> String {
    format!("/proc/sys/{}", setting.replace('.', "/"))
}

fn setting_is(setting: &str, value: &str) -> bool {
    fs::read_to_string(path_of(setting)).is_ok_and(|text| text.trim() == value)
}

/// Changes a kernel setting, now and at the next start, if it has one of the `wrong` values.
fn setting(name: &'static str, wrong: &[&str], right: &'static str) -> Option<Step> {
    let was = fs::read_to_string(path_of(name)).ok()?.trim().to_owned();
    if !wrong.contains(&&*was) {
        return None;
    }
    let lasts = Path::new(SETTINGS).is_dir();
    let until =
        if lasts { format!(", also in {SETTINGS_FILE}") } else { ", until the next start".to_owned() };
    let undo = format!("sysctl {name}={was}");
    let undo = if lasts { format!("{undo}; sed -i '/^{name}/d' {SETTINGS_FILE}") } else { undo };
    Some(Step::new(format!("{name} = {right} (was {was}){until}"), undo, move || {
        fs::write(path_of(name), right)?;
        if lasts {
            let others = fs::read_to_string(SETTINGS_FILE).unwrap_or_default();
            let others = others.lines().filter(|line| !line.starts_with(name));
            let lines: String = others.map(|line| format!("{line}\n")).collect();
            fs::write(SETTINGS_FILE, format!("{lines}{name} = {right}\n"))?;
        }
        Ok(())
    }))
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_name() {
        let groups = "root:x:0:\nuserfaultfd:x:987:ann,bob\nbroken\n";
        assert_eq!(group(groups, "userfaultfd"), Some((987, vec!["ann".to_owned(), "bob".to_owned()])));
        assert_eq!(group(groups, "root"), Some((0, vec![])));
        assert_eq!(group(groups, "broken"), None);
    }

    #[test]
    fn settings_that_are_right_stay() {
        assert!(setting("kernel.ostype", &["1"], "0").is_none());
        assert!(setting("kernel.no_such_setting", &["1"], "0").is_none());
        let step = setting("kernel.ostype", &["Linux"], "0").unwrap();
        assert!(step.what.contains("(was Linux)") && step.undo.starts_with("sysctl kernel.ostype=Linux"));
    }
}
