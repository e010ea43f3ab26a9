"""The release's container image, and a container of it that crun runs for a user without rights."""

import json
import os
import platform
import subprocess

from harness import check

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# The user, and what a user namespace calls it.
NOBODY = 65534


class Image:
    """An unpacked image in OCI layout."""

    def __init__(self, archive, place):
        self.place = os.path.join(place, "image")
        os.mkdir(self.place)
        extract(archive, self.place)
        with open(os.path.join(self.place, "index.json"), encoding="utf-8") as file:
            self.entries = json.load(file)["manifests"]

    def blob(self, entry):
        """The path of a blob."""
        return os.path.join(self.place, "blobs", *entry["digest"].split(":"))

    def read(self, entry):
        """A blob that is JSON."""
        with open(self.blob(entry), encoding="utf-8") as file:
            return json.load(file)

    def manifest(self):
        """This machine's."""
        wanted = ARCHITECTURES.get(platform.machine())
        found = [entry for entry in self.entries if entry["platform"]["architecture"] == wanted]
        check(found, f"the image has nothing for {wanted}")
        return self.read(found[0])

    def config(self):
        """What the image says about its containers."""
        return self.read(self.manifest()["config"])["config"]

    def unpack(self, root):
        """Unpacks the layers for this machine."""
        os.mkdir(root)
        for layer in self.manifest()["layers"]:
            extract(self.blob(layer), root)


def extract(archive, place):
    """Unpacks a tar file."""
    subprocess.run(["tar", "-C", place, "-xf", archive], check=True, timeout=300)


def own_device(place, uid):
    """A node of the device that handles page faults, as a device plugin lends it to a user."""
    node = os.path.join(place, "userfaultfd")
    os.mknod(node, 0o600 | 0o020000, os.stat("/dev/userfaultfd").st_rdev)
    os.chown(node, uid, uid)
    return node


def container(place, image, words, mounts):
    """Makes a bundle, and returns the words that start it: a container of an unprivileged user, in a
    user namespace in which that user is root. `mounts` are places within it and what lies there."""
    bundle = os.path.join(place, "bundle")
    os.mkdir(bundle)
    root = os.path.join(bundle, "rootfs")
    image.unpack(root)
    for to in mounts:
        if not to.startswith("/dev/"):
            os.makedirs(root + to, exist_ok=True)
    plain = ["nosuid", "noexec", "nodev"]
    binds = [{"destination": to, "type": "bind", "source": source, "options": ["bind", "rw"]} for to, source in mounts.items()]
    devices = [{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]}]
    spec = {
        "ociVersion": "1.0.0",
        "process": {"user": {"uid": 0, "gid": 0}, "args": words, "env": image.config()["Env"], "cwd": "/", "noNewPrivileges": True, "capabilities": {}},
        "root": {"path": "rootfs", "readonly": True},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc", "options": plain}, *devices, *binds],
        "linux": {
            "uidMappings": [{"containerID": 0, "hostID": NOBODY, "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": NOBODY, "size": 1}],
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "user", "network")],
        },
    }
    with open(os.path.join(bundle, "config.json"), "w", encoding="utf-8") as file:
        json.dump(spec, file)
    state = os.path.join(place, "state")
    os.mkdir(state)
    for path in (state, bundle):
        os.chown(path, NOBODY, NOBODY)
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all"]
    name = os.path.basename(place)
    # crun knows no machine that has both kinds of cgroups.
    one_kind = ["unshare", "--mount", "sh", "-ec", 'mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec "$@"', "sh"]
    return [*one_kind, *as_nobody, "crun", f"--root={state}", "--cgroup-manager=disabled", "run", f"--bundle={bundle}", name]
