"""The rules of style that ruff does not have."""

import ast

import pytest

from scripts import style


@pytest.mark.parametrize(
    "code",
    [
        "found = find()",
        "def present(each): ...",
        "job._left = 1",
        "[each for each in rows]",
        "sorted(rows, key=lambda given: given.id)",
        "for made, booking in pairs: ...",
        "with open(path) as this: ...",
        "try: ...\nexcept LookupError as seen: ...",
        "match row:\n    case [known]: ...",
        "KEPT = 3",
    ],
    ids=["variable", "parameter", "attribute", "element", "lambda", "loop", "with", "except", "match", "constant"],
)
def test_a_word_about_the_history_of_a_value_is_no_name(code: str) -> None:
    (problem,) = style.empty_names("tests/test_booking.py", ast.parse(code))
    assert problem.endswith(" says nothing about its value")


def test_the_noun_of_a_value_is_a_name() -> None:
    code = "rows = [row for row in find(given=ids)]\nbooking.seats_taken = rows[0].taken"
    assert list(style.empty_names("tests/test_booking.py", ast.parse(code))) == []


def test_every_allowed_word_is_a_name_in_its_module() -> None:
    modules = {name: ast.parse((style.ROOT / name).read_text()) for name, _ in style.ALLOWED_WORDS}
    names = {(name, binding) for name, tree in modules.items() for binding, _ in style.bindings(tree)}
    assert names >= style.ALLOWED_WORDS
