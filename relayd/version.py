"""The version, read by the build and told in `welcome`."""

__version__ = "0.1.0"
