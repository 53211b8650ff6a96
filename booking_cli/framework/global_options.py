"""The values of the global options, which `command` declares."""

from dataclasses import dataclass


@dataclass(slots=True)
class Options:
    """The global options. Each may stand before or after the command; the last one wins."""

    output: str | None = None
    json: bool = False
    fields: tuple[str, ...] = ()
    color: str = "auto"
    quiet: bool = False
    verbose: int = 0
    debug: bool = False
    no_progress: bool = False
    yes: bool = False
    profile: str | None = None
    base_url: str | None = None
    api_key_stdin: bool = False
