"""The release, as the `User-Agent` header tells it; every distribution of the service carries the same one."""

__version__ = "0.1.0"
