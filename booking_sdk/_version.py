"""The release, which the `User-Agent` header contains; every distribution of the service carries the same one."""

__version__ = "0.1.0"
