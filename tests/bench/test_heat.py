"""The heat map is an SVG with a square for each cell, coloured by its ratio to the limit."""

from xml.etree import ElementTree

from bench import heat
from bench.kinds import Mapped, Matrix, Ratio, Row

SVG = "{http://www.w3.org/2000/svg}"
LIMITS = {"postgresql": 3.0, "sqlite": 5.0}


def mapped(*rows: Row) -> Mapped:
    entry = Matrix("neighbours", "p99 & <more>", ("me", "book"), LIMITS, lambda stage, stack: None)
    return Mapped(entry, {side: list(rows) for side in LIMITS}, [], [])


def ratio(value: float) -> Ratio:
    return Ratio(value, 1.0, 2.0, 2.0 * value)


def texts(svg: str) -> list[str | None]:
    return [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_each_cell_shows_its_ratio_on_each_side() -> None:
    shown = texts(heat.drawn(mapped(Row("rush", {"me": ratio(0.5), "book": ratio(1234.0)}))))
    assert shown.count("0.5") == 2
    assert shown.count("1,234") == 2


def test_a_cell_that_was_not_measured_is_grey_and_without_a_figure() -> None:
    drawn = ElementTree.fromstring(heat.drawn(mapped(Row("rush", {"me": ratio(0.5)}))))
    assert [each.attrib.get("class") for each in drawn.iter(f"{SVG}rect")].count("none") == 2


def test_a_row_with_a_failure_is_marked_whatever_its_ratios() -> None:
    shown = texts(heat.drawn(mapped(Row("rush", {"me": ratio(0.5)}, ("delivery: 1 missing",)))))
    assert "rush (!)" in shown


def test_the_colour_turns_at_the_limit_and_is_darkest_at_a_hundred_times_as_much() -> None:
    assert heat.colour(3.0, 3.0) == heat.WITHIN[1]
    assert heat.colour(0.0, 3.0) == heat.WITHIN[0]
    assert heat.colour(3.0001, 3.0) == heat.ABOVE[0]
    assert heat.colour(300.0, 3.0) == heat.colour(9999.0, 3.0) == heat.ABOVE[1]


def test_the_words_of_an_entry_do_not_break_the_drawing() -> None:
    assert "p99 & <more>, sqlite: at most 5 times" in texts(heat.drawn(mapped()))
