"""The release, which the `User-Agent` header contains. All distributions of the service have the same version."""

__version__ = "0.1.0"
