"""The wheel's tag: any Python 3, but one platform, since the program and the libraries are in it."""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TAG = "py3-none-manylinux_2_34_x86_64"


class CustomBuildHook(BuildHookInterface):
    """Sets the tag."""

    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = TAG
