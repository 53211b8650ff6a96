"""The version of this distribution. It is written here, since reading the installed metadata is slow."""

__version__ = "0.1.0"
