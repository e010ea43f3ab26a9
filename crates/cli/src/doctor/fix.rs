//! `terapage doctor --fix`: does what the doctor advises, and says how to undo it.

use crate::doctor::container;
use anyhow::{Context, bail};
use std::fs;
use std::io::{BufRead, IsTerminal};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// The group that may open the device.
const GROUP: &str = "userfaultfd";
const DEVICE: &str = "/dev/userfaultfd";
const RULES: &str = "/etc/udev/rules.d";
const RULE_FILE: &str = "/etc/udev/rules.d/70-userfaultfd.rules";
/// The setting that lets everybody handle faults.
const FOR_EVERYBODY: &str = "vm.unprivileged_userfaultfd";
const SETTINGS: &str = "/etc/sysctl.d";
const SETTINGS_FILE: &str = "/etc/sysctl.d/60-terapage.conf";
/// The devices of the kernel's major number 10, whether /dev shows them or not.
const MISC: &str = "/proc/misc";
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
    /// What is changed, in words.
    what: String,
    /// The command that reverts the step.
    undo: String,
    /// Whether it changes the kernel's settings, which a container shares with its host.
    is_of_host: bool,
    act: Box<dyn FnOnce() -> anyhow::Result<()>>,
}

impl Step {
    fn new(what: String, undo: String, act: impl FnOnce() -> anyhow::Result<()> + 'static) -> Step {
        Step { what, undo, is_of_host: false, act: Box::new(act) }
    }

    fn of_host(self) -> Step {
        Step { is_of_host: true, ..self }
    }
}

/// The machine, as far as the steps depend on it.
struct Machine {
    /// The device's group and mode.
    device: Option<(u32, u32)>,
    /// The device's minor number, if the kernel has the device.
    minor: Option<u32>,
    /// Whether this process is in a container.
    is_inside: bool,
}

impl Machine {
    fn this() -> Machine {
        let found = fs::metadata(DEVICE).ok().filter(|found| found.file_type().is_char_device());
        Machine {
            device: found.map(|found| (found.gid(), found.mode() & 0o777)),
            minor: minor(&fs::read_to_string(MISC).unwrap_or_default()),
            is_inside: container::is_inside(),
        }
    }

    /// Whether a container lacks a device that the kernel has. Then the device is to be given to
    /// the container: a setting of the kernel would let everybody on the host.
    fn withholds(&self) -> bool {
        self.is_inside && self.device.is_none() && self.minor.is_some()
    }
}

/// Does the missing steps one by one, or with `dry` only names them.
///
/// # Errors
/// The user is not root, or a step fails, and has changed nothing: those before it remain.
pub fn fix(dry: bool) -> anyhow::Result<()> {
    if !dry && !rustix::process::geteuid().is_root() {
        bail!("--fix changes the machine, so it needs root (try: sudo terapage doctor --fix, or --dry-run)");
    }
    let machine = Machine::this();
    let everybody_may = setting_is(FOR_EVERYBODY, "1");
    let steps = steps(&machine);
    if machine.withholds() && !everybody_may {
        line("left", &format!("{DEVICE} is not in this container: {}", container::GIVE_DEVICE))?;
    } else if steps.is_empty() {
        crate::print("nothing has to be fixed for this machine's users\n")?;
    }
    let mut changed = false;
    for step in steps {
        let asks = step.is_of_host && machine.is_inside;
        let whole = if asks { ", of the whole host" } else { "" };
        line("would", &format!("{}{whole}", step.what))?;
        line("", &format!("undo: {}", step.undo))?;
        if dry {
            continue;
        }
        if asks && !agrees()? {
            let on_host = "on the host: sudo terapage doctor --fix";
            line("left", &format!("a container does not change its host unasked ({on_host})"))?;
            continue;
        }
        (step.act)().with_context(|| format!("--fix: {}: not done", step.what))?;
        line("done", &step.what)?;
        changed = true;
    }
    if changed {
        crate::print("Users who were added to a group log in again.\n")?;
    }
    crate::print("\n")
}

fn line(label: &str, text: &str) -> anyhow::Result<()> {
    crate::print(&format!("{label:<8} {text}\n"))
}

/// Whether the person at the terminal, if there is one, agrees that the whole host is changed.
fn agrees() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Ok(false);
    }
    crate::print("         change the whole host? [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("--fix: no answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The minor number of the device in the text of /proc/misc.
fn minor(misc: &str) -> Option<u32> {
    let mut lines = misc.lines().filter_map(|line| line.trim().split_once(' '));
    lines.find(|(_, name)| *name == "userfaultfd")?.0.parse().ok()
}

/// What is missing.
fn steps(machine: &Machine) -> Vec<Step> {
    let mut steps = Vec::new();
    match (machine.device, machine.minor) {
        (Some((gid, mode)), _) => for_group(gid, mode, &mut steps),
        (None, Some(minor)) if !machine.is_inside => {
            steps.push(Step::new(
                format!("{DEVICE} is made, until the next start"),
                format!("rm {DEVICE}"),
                move || run("mknod", &["-m", "600", DEVICE, "c", "10", &minor.to_string()]),
            ));
            for_group(0, 0o600, &mut steps);
        }
        (None, Some(_)) => {}
        (None, None) => steps.extend(setting(FOR_EVERYBODY, &["0"], "1")),
    }
    steps.extend(setting("kernel.io_uring_disabled", &["1", "2"], "0"));
    if fs::read_to_string(HUGE_PAGES).is_ok_and(|text| text.contains("[never]")) {
        let step = Step::new(
            format!("{HUGE_PAGES}: madvise (was never), until the next start"),
            format!("echo never > {HUGE_PAGES}"),
            || Ok(fs::write(HUGE_PAGES, "madvise")?),
        );
        steps.push(step.of_host());
    }
    steps
}

/// Gives the device to a group, now and at the next start, and puts the user of `sudo` into it.
fn for_group(was_gid: u32, was_mode: u32, steps: &mut Vec<Step>) {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let (gid, members) = group(&groups, GROUP).unzip();
    let everybody_may = was_mode & 0o006 == 0o006;
    if everybody_may || setting_is(FOR_EVERYBODY, "1") {
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
                write_whole(Path::new(RULE_FILE), &rule)?;
                // If udev does not run, the next step has the same effect.
                run("udevadm", &["control", "--reload"]).ok();
                Ok(())
            },
        ));
    }
    if gid == Some(was_gid) && was_mode & 0o060 == 0o060 {
        return;
    }
    steps.push(Step::new(
        format!("{DEVICE}: group {GROUP}, mode 660 (was group {was_gid}, mode {was_mode:o})"),
        format!("chgrp {was_gid} {DEVICE}; chmod {was_mode:o} {DEVICE}"),
        move || {
            let groups = fs::read_to_string("/etc/group")?;
            let (gid, _) = group(&groups, GROUP).context("the group is not in /etc/group")?;
            chown(DEVICE, None, Some(gid))?;
            fs::set_permissions(DEVICE, fs::Permissions::from_mode(0o660)).inspect_err(|_| {
                chown(DEVICE, None, Some(was_gid)).ok();
            })?;
            Ok(())
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
    let step = Step::new(format!("{name} = {right} (was {was}){until}"), undo, move || {
        // The file comes first: where it cannot be written, the kernel's setting stays.
        let file = Path::new(SETTINGS_FILE);
        let old = fs::read_to_string(file).ok();
        if lasts {
            let others = old.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with(name));
            let lines: String = others.map(|line| format!("{line}\n")).collect();
            write_whole(file, &format!("{lines}{name} = {right}\n"))?;
        }
        fs::write(path_of(name), right).with_context(|| path_of(name)).inspect_err(|_| match &old {
            Some(old) if lasts => drop(write_whole(file, old)),
            None if lasts => drop(fs::remove_file(file)),
            _ => {}
        })
    });
    Some(step.of_host())
}

/// Writes a file so that it has all of the text, or stays as it was.
fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let beside = path.with_extension("terapage-new");
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    written.with_context(|| path.display().to_string()).inspect_err(|_| drop(fs::remove_file(&beside)))
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

    /// A container gets no step for a device that it lacks; a host gets its device.
    #[test]
    fn a_missing_device_is_made_and_nothing_wider_is_opened() {
        let misc = "183 hw_random\n257 userfaultfd\n 61 network_throughput\n";
        assert_eq!((minor(misc), minor("183 hw_random\n")), (Some(257), None));
        let at = |is_inside| Machine { device: None, minor: minor(misc), is_inside };
        let texts =
            |machine: &Machine| -> Vec<String> { steps(machine).into_iter().map(|step| step.what).collect() };
        assert!(texts(&at(false))[0].contains("/dev/userfaultfd is made"), "{:?}", texts(&at(false)));
        for machine in [at(false), at(true)] {
            assert!(texts(&machine).iter().all(|what| !what.contains(FOR_EVERYBODY)));
        }
        assert!(at(true).withholds() && !at(false).withholds());
        let old = Machine { device: None, minor: None, is_inside: true };
        assert!(!old.withholds() && steps(&old).iter().all(|step| step.is_of_host), "each asks first");
    }

    #[test]
    fn a_file_that_cannot_be_written_stays() {
        let place = std::env::temp_dir().join(format!("terapage-fix-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        write_whole(&place.join("a.conf"), "one\n").unwrap();
        assert_eq!(fs::read_to_string(place.join("a.conf")).unwrap(), "one\n");
        assert!(write_whole(&place.join("none/a.conf"), "two\n").is_err());
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "nothing is left beside it");
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn settings_that_are_right_stay() {
        assert!(setting("kernel.ostype", &["1"], "0").is_none());
        assert!(setting("kernel.no_such_setting", &["1"], "0").is_none());
        let step = setting("kernel.ostype", &["Linux"], "0").unwrap();
        assert!(
            step.is_of_host
                && step.what.contains("(was Linux)")
                && step.undo.starts_with("sysctl kernel.ostype=Linux")
        );
    }
}
