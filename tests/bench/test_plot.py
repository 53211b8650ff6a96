"""The plot is an SVG that contains the measurements."""

from xml.etree import ElementTree

from bench import plot
from bench.kinds import Curve, Curved
from bench.measure import Sample

SVG = "{http://www.w3.org/2000/svg}"


def sample(throughput: float, p99_ms: float) -> Sample:
    return Sample(throughput, p99_ms / 2, p99_ms, 100, {"200": 100}, 1.0, 1.0, 1.0, 0.1, 0.1)


def curve() -> Curved:
    entry = Curve("curve", "GET /<things> & more", "clients", (1, 4, 16), (1,), lambda stage, stack: None)
    service = {1: (300.0, 4.0), 4: (900.0, 8.0), 16: (1200.0, 40.0)}
    levels = {
        clients: {"service": [sample(*figures)], "floor": [sample(2 * figures[0], figures[1] / 2)]}
        for clients, figures in service.items()
    }
    return Curved(entry, levels, [], [])


def lines(svg: str) -> list[list[tuple[float, float]]]:
    """Return the points of every line in the plot."""
    return [
        [(float(x), float(y)) for x, y in (point.split(",") for point in line.attrib["points"].split())]
        for line in ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    ]


def test_each_side_has_a_curve_for_throughput_and_one_for_p99() -> None:
    assert [len(points) for points in lines(plot.drawn([curve(), curve()]))] == [3] * 8


def test_what_is_more_is_drawn_higher_and_further_right() -> None:
    service, floor, *_ = lines(plot.drawn([curve()]))
    assert [x for x, _ in service] == sorted({x for x, _ in service})
    assert [y for _, y in service] == sorted({y for _, y in service}, reverse=True)
    assert all(above < below for (_, above), (_, below) in zip(floor, service, strict=True))


def test_the_words_of_an_entry_do_not_break_the_drawing() -> None:
    titles = [text.text for text in ElementTree.fromstring(plot.drawn([curve()])).iter(f"{SVG}text")]
    assert "GET /<things> & more: requests/s" in titles
