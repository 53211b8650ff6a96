"""The imports between modules of `booking_cli`, also inside functions and under TYPE_CHECKING."""

import grimp
import pytest

LAYERS = {
    "main": {"commands", "framework"},
    "commands": {"commands", "client", "operator", "framework"},
    "client": {"client", "framework"},
    "operator": {"operator", "framework"},
    "framework": {"framework", "_version"},
}
"""The packages that each part may import."""


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Return the modules of the package, each with the modules of the package that it imports."""
    graph = grimp.build_graph("booking_cli", cache_dir=None)
    return {
        module: {each for each in graph.find_modules_directly_imported_by(module) if each.startswith("booking_cli.")}
        for module in graph.modules
    }


def part_of(module: str) -> str:
    return module.split(".")[1]


def test_each_part_imports_only_the_parts_below_it(imports: dict[str, set[str]]) -> None:
    wrong = {
        (module, imported)
        for module, reached in imports.items()
        for imported in reached
        if module != "booking_cli" and part_of(module) != "_version"
        if part_of(imported) not in LAYERS[part_of(module)]
    }
    assert wrong == set()


def test_every_module_belongs_to_a_part(imports: dict[str, set[str]]) -> None:
    assert {part_of(module) for module in imports if module != "booking_cli"} == {*LAYERS, "_version"}
