"""The wheel's tag: any Python 3, but one platform, since the program and the libraries are in it."""

from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    """Sets the tag."""

    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        # `packaging/wheel` has written it.
        build_data["tag"] = f"py3-none-{(Path(self.root) / 'tag').read_text().strip()}"
