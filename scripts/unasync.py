"""Generates the sync client of the SDK from the async client.

    make sync-client

Every module in `SOURCES` becomes the module of the same name in `booking_sdk/_sync/`. `RULES` are all differences.
Two pairs are written by hand, because asyncio and threads differ there: `_concurrency` in both folders, and the two
`Connections` classes in `_http`.
"""

import re
import subprocess
import sys
from pathlib import Path

SDK = Path(__file__).parents[1] / "booking_sdk"
SYNC = SDK / "_sync"

SOURCES = [
    *(SDK / f"{name}.py" for name in ("_base_client", "_resource", "_transport", "client", "feed", "pagination")),
    *sorted((SDK / "resources").glob("*.py")),
]
HANDWRITTEN = [SYNC / "__init__.py", SYNC / "_concurrency.py"]

HEADER = "# Generated from booking_sdk/{source} by `make sync-client`. Do not edit.\n"

_SYNC_MODULES = "_base_client|_concurrency|_resource|_transport|client|feed|pagination|resources"
RULES = [
    (rf"\bfrom booking_sdk\.({_SYNC_MODULES})\b", r"from booking_sdk._sync.\1"),
    (
        r"\bThe async client\. The sync client, `booking_sdk\._sync\.client`, is generated from it\b.*",
        'The sync client."""',
    ),
    (r"\bAsync([A-Z])", r"\1"),
    (r"\basync_(\w)", r"\1"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\banext\(", "next("),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\ba(close|iter_bytes|iter_raw)\b", r"\1"),
    (r"\btasks\b", "threads"),
    (r"\banother task, another thread\b", "another thread"),
    (r"\basync client\b", "sync client"),
    (r"\n\nThe sync class(es)?, in [^\"]*", "\n"),
]


def target_of(source: Path) -> Path:
    """Return the path of the generated module."""
    return SYNC / source.relative_to(SDK)


def generate(source: Path) -> str:
    """Return the text of the generated module."""
    text = source.read_text(encoding="utf-8")
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    header = HEADER.format(source=source.relative_to(SDK).as_posix())
    return _format(header + text, target_of(source))


def _format(text: str, path: Path) -> str:
    """Sort the imports, remove those that only the async module needs, and format."""
    name = f"--stdin-filename={path}"
    text = _ruff(["check", "--quiet", "--select=I,F401,F811", "--fix-only", name, "-"], text)
    return _ruff(["format", name, "-"], text)


def _ruff(arguments: list[str], text: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments]
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=SDK.parent)  # noqa: S603
    return result.stdout


def main() -> None:
    """Write all generated modules, and delete those without a source."""
    for source in SOURCES:
        target = target_of(source)
        target.parent.mkdir(exist_ok=True)
        target.write_text(generate(source), encoding="utf-8")
    expected = {*HANDWRITTEN, *map(target_of, SOURCES)}
    for path in SYNC.rglob("*.py"):
        if path not in expected:
            path.unlink()


if __name__ == "__main__":
    main()
