//! Containers and batch jobs: says which one this process is in, and prints the lines that start a
//! container or job in which programs can be paged.

use crate::doctor::Check;
use std::path::Path;

/// Programs that run containers and jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    Docker,
    Podman,
    Kubernetes,
    Apptainer,
    Slurm,
    /// Some container.
    Other,
}

impl Host {
    /// Its usual name.
    fn name(self) -> &'static str {
        match self {
            Host::Docker => "a Docker container",
            Host::Podman => "a Podman container",
            Host::Kubernetes => "a pod of Kubernetes",
            Host::Apptainer => "an Apptainer container",
            Host::Slurm => "a job of Slurm",
            Host::Other => "a container",
        }
    }

    /// The lines that start a program that can be paged.
    fn lines(self) -> &'static str {
        match self {
            Host::Docker | Host::Other => DOCKER,
            Host::Podman => PODMAN,
            Host::Kubernetes => KUBERNETES,
            Host::Apptainer => APPTAINER,
            Host::Slurm => SLURM,
        }
    }
}

/// With Docker's default seccomp profile, only the device is needed.
const DOCKER: &str = "\
docker run --device /dev/userfaultfd -v /mnt/nvme:/store --memory 8g IMAGE terapage run --memory 85% --store /store -- PROGRAM
if the user in the container is not root, or the host has no such device: --security-opt seccomp=unconfined instead";

const PODMAN: &str = "\
podman run --security-opt seccomp=unconfined -v /mnt/nvme:/store IMAGE terapage run --memory 6G --store /store -- PROGRAM
or with --device /dev/userfaultfd: without root, the host's user must be in the device's group, and --group-add keep-groups";

const KUBERNETES: &str = "\
in the pod: securityContext: {seccompProfile: {type: Unconfined}}, or a plugin that lends /dev/userfaultfd; an emptyDir or local volume at /store
its command: [terapage, run, --memory, 85%, --store, /store, --store-size, 56G, --, PROGRAM]";

const APPTAINER: &str = "\
apptainer exec --bind /mnt/nvme:/store IMAGE terapage run --memory 85% --store /store -- PROGRAM";

const SLURM: &str = "\
#SBATCH --mem=8G
srun terapage run --memory 85% --store \"$TMPDIR\" -- PROGRAM";

/// What gives a container the device.
pub const GIVE_DEVICE: &str =
    "start it with --device /dev/userfaultfd or --security-opt seccomp=unconfined (docs/containers.md)";

/// The numbers of the first namespaces of processes and of users, in all kernels.
const FIRST_PIDS: u64 = 0xEFFF_FFFC;
const FIRST_USERS: u64 = 0xEFFF_FFFD;
/// That of the first namespace of mounts, from Linux 6.18 on.
const FIRST_MOUNTS: u64 = 0xEFFF_FFF8;

/// Whether this process is in a container, known or not: what it sees as the machine's may be the
/// container's, and what it changes in the kernel is the host's. Namespaces decide, since the marks
/// of a container also lie in a machine that was made from its image.
pub fn is_inside() -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |path: &str| std::fs::metadata(path).ok().map(|found| found.ino());
    let is_marked = || hosts().iter().any(|&host| host != Host::Slurm);
    // Only root may ask which mounts the first process has. A root who may not is confined.
    is_apart(number).unwrap_or_else(|| rustix::process::geteuid().is_root() || is_marked())
}

/// Whether this process has namespaces that are not the machine's first ones, by the namespaces'
/// numbers; `None` if that is unknown.
fn is_apart(number: impl Fn(&str) -> Option<u64>) -> Option<bool> {
    let is_other = |path: &str, first: u64| number(path).is_some_and(|number| number != first);
    if is_other("/proc/self/ns/pid", FIRST_PIDS) || is_other("/proc/self/ns/user", FIRST_USERS) {
        return Some(true);
    }
    let mounts = number("/proc/self/ns/mnt")?;
    if mounts == FIRST_MOUNTS { Some(false) } else { Some(mounts != number("/proc/1/ns/mnt")?) }
}

/// The container, the job, or both, in which this process runs.
pub fn hosts() -> Vec<Host> {
    let has = |path: &str| Path::new(path).exists();
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    hosts_by(has, |name| std::env::var(name).ok().filter(|value| !value.is_empty()), &cgroup)
}

fn hosts_by(
    has: impl Fn(&str) -> bool,
    variable: impl Fn(&str) -> Option<String>,
    cgroup: &str,
) -> Vec<Host> {
    let container = variable("container");
    let is = |name: &str| container.as_deref() == Some(name);
    let of_container = if variable("KUBERNETES_SERVICE_HOST").is_some() || cgroup.contains("kubepods") {
        Some(Host::Kubernetes)
    } else if has("/.singularity.d") || variable("APPTAINER_CONTAINER").is_some() {
        Some(Host::Apptainer)
    } else if has("/run/.containerenv") || is("podman") || cgroup.contains("/libpod") {
        Some(Host::Podman)
    } else if has("/.dockerenv") || is("docker") || cgroup.contains("/docker") {
        Some(Host::Docker)
    } else {
        container.map(|_| Host::Other)
    };
    let of_job = variable("SLURM_JOB_ID").map(|_| Host::Slurm);
    of_container.into_iter().chain(of_job).collect()
}

/// What the doctor reports about the container or job. If something is `missing`, that includes the
/// lines that start a program there.
pub fn checks(missing: bool) -> Vec<Check> {
    let say = |host: Host| match missing {
        true => Check::advice("place", host.name(), host.lines()),
        false => Check::ok("place", host.name()),
    };
    hosts().into_iter().map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_what_its_maker_leaves_there() {
        let none = |_: &str| None;
        let nothing = |_: &str| false;
        assert!(hosts_by(nothing, none, "0::/user.slice").is_empty());
        assert_eq!(hosts_by(|path| path == "/.dockerenv", none, "0::/"), [Host::Docker]);
        assert_eq!(hosts_by(|path| path == "/run/.containerenv", none, "0::/"), [Host::Podman]);
        assert_eq!(hosts_by(nothing, none, "0::/kubepods.slice/pod1"), [Host::Kubernetes]);
        let slurm = |name: &str| (name == "SLURM_JOB_ID").then(|| "7".to_owned());
        assert_eq!(hosts_by(|path| path == "/.singularity.d", slurm, ""), [Host::Apptainer, Host::Slurm]);
        let other = |name: &str| (name == "container").then(|| "lxc".to_owned());
        assert_eq!(hosts_by(nothing, other, ""), [Host::Other]);
    }

    #[test]
    fn a_container_is_known_by_its_namespaces() {
        let at = |pids: u64, users: u64, mounts: u64, first_mounts: Option<u64>| {
            is_apart(|path| match path {
                "/proc/self/ns/pid" => Some(pids),
                "/proc/self/ns/user" => Some(users),
                "/proc/self/ns/mnt" => Some(mounts),
                _ => first_mounts,
            })
        };
        let of_host = |mounts, first_mounts| at(FIRST_PIDS, FIRST_USERS, mounts, first_mounts);
        assert_eq!((of_host(7, Some(7)), of_host(FIRST_MOUNTS, None)), (Some(false), Some(false)));
        assert_eq!((of_host(8, Some(7)), of_host(8, None)), (Some(true), None));
        assert_eq!((at(9, FIRST_USERS, 7, None), at(FIRST_PIDS, 9, 7, Some(7))), (Some(true), Some(true)));
    }

    /// crun refuses a profile that allows calls by default and yet has an error number for them.
    #[test]
    fn runtimes_take_the_profile_that_the_page_names() {
        let profile = include_str!("../../../../contrib/seccomp/terapage.json");
        let profile: serde_json::Value = serde_json::from_str(profile).expect("the profile is JSON");
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ALLOW");
        assert!(profile.get("defaultErrnoRet").is_none());
    }

    /// The doctor prints the same lines as the page.
    #[test]
    fn the_lines_are_in_the_documentation() {
        let docs = include_str!("../../../../docs/containers.md");
        for host in [Host::Docker, Host::Podman, Host::Kubernetes, Host::Apptainer, Host::Slurm] {
            let lines = host.lines().lines();
            let commands: Vec<_> = lines.filter_map(|line| line.split_once("terapage run")).collect();
            let of_pod = host.lines().lines().filter_map(|line| line.split_once("[terapage, run"));
            let of_pod: Vec<_> = of_pod.collect();
            assert_eq!(commands.len() + of_pod.len(), 1, "{host:?}");
            for part in commands.iter().chain(&of_pod).flat_map(|(before, after)| [before, after]) {
                let part = part.trim_start_matches("its command: ");
                assert!(docs.contains(part), "{part} is not in docs/containers.md");
            }
        }
    }
}
