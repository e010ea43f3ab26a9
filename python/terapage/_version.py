"""The version of the package, the program and the libraries in it."""

__version__ = "0.1.0"
