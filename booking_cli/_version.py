"""The version of this distribution, the same as in its pyproject.toml: to ask the installed one takes longer than a
command that needs nothing else."""

__version__ = "0.1.0"
