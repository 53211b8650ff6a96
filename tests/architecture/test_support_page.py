"""The page of the test helpers lists every module, and its example runs."""

import re
from pathlib import Path

from support.api.api import Api
from support.world.world import World

SUPPORT = Path(__file__).parents[1] / "support"
PAGE = (SUPPORT / "README.md").read_text(encoding="utf-8")


def test_the_page_lists_exactly_the_modules_of_the_folder() -> None:
    modules = {path.stem for path in SUPPORT.rglob("*.py")} - {"__init__"}
    first_cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    assert {name for cell in first_cells for name in re.findall(r"\w+", cell)} == modules


def test_the_example_runs(api: Api, world: World) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    (test,) = (value for name, value in names.items() if name.startswith("test_") and callable(value))
    test(api, world)
