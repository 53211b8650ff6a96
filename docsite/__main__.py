"""`python -m docsite`: build the documentation site into build/docs/site."""

import argparse
import sys
import time
from pathlib import Path

from docsite.build import ROOT, BuildFailed, build, relative
from docsite.links import BrokenLink


def main() -> int:
    """Build the site and print where it is."""
    parser = argparse.ArgumentParser(prog="python -m docsite", description="Build the documentation site.")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/docs", help="where to build; it is replaced")
    folder = parser.parse_args().folder
    began = time.monotonic()
    try:
        site = build(folder)
    except (BuildFailed, BrokenLink) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Built in {time.monotonic() - began:.1f} s: {relative(site)}/index.html\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
