"""`python -m docsite`: build the documentation site into build/docs/site."""

import argparse
import sys
from pathlib import Path

from docsite.build import BuildFailed, build


def main() -> int:
    """Build the site and print where it is."""
    parser = argparse.ArgumentParser(prog="python -m docsite", description="Build the documentation site.")
    parser.add_argument("--folder", type=Path, default="build/docs", help="where to build; it is replaced")
    try:
        site = build(parser.parse_args().folder)
    except BuildFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Built: {site}/index.html\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
