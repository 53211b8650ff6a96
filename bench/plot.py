"""The plot: throughput and p99 by the number of clients or the load, as a hand-written SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from bench.kinds import Curved, typical

PANEL_WIDTH, PANEL_HEIGHT = 420, 240
LEFT, TOP, GAP, BOTTOM = 70, 70, 90, 60
COLOURS = ("#0b6e99", "#d9730d", "#6c6f73")
INK = "#37352f"
_STYLE = f"""<style>
text {{ font: 12px sans-serif; fill: {INK} }} .title {{ font-size: 14px; font-weight: bold }}
.grid {{ stroke: #e3e2e0 }} .axis {{ stroke: {INK} }} .line {{ fill: none; stroke-width: 2 }}
</style>"""


@dataclass(frozen=True, slots=True)
class Scale:
    """A logarithmic axis, since clients double and latencies span decades: from a value to a position in the panel."""

    low: float
    high: float
    length: float

    def at(self, value: float) -> float:
        span = log10(self.high) - log10(self.low)
        return (log10(max(value, self.low)) - log10(self.low)) / span * self.length


def drawn(curves: Sequence[Curved]) -> str:
    """Draw a row for each curve: requests per second on the left, p99 in milliseconds on the right."""
    width = LEFT + 2 * PANEL_WIDTH + GAP + 20
    height = len(curves) * (TOP + PANEL_HEIGHT + BOTTOM)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">', _STYLE]
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for row, curve in enumerate(curves):
        top = row * (TOP + PANEL_HEIGHT + BOTTOM) + TOP
        parts += _panel(curve, "throughput", "requests/s", LEFT, top)
        parts += _panel(curve, "p99_ms", "p99, ms", LEFT + PANEL_WIDTH + GAP, top)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(curve: Curved, figure: str, unit: str, left: float, top: float) -> list[str]:
    clients = sorted(curve.levels)
    lines = {
        side: [(number, typical(curve.levels[number][side], figure)) for number in clients]
        for side in curve.levels[clients[0]]
    }
    values = [value for points in lines.values() for _, value in points if value > 0]
    across = Scale(clients[0], max(clients[-1], clients[0] * 2), PANEL_WIDTH)
    up = Scale(
        10 ** floor(log10(min(values))),
        10 ** max(ceil(log10(max(values))), floor(log10(min(values))) + 1),
        PANEL_HEIGHT,
    )
    parts = [f'<text class="title" x="{left}" y="{top - 42}">{escape(curve.entry.measures)}: {escape(unit)}</text>']
    parts += _grid(across, up, clients, curve.entry.by, left, top)
    for number, (side, points) in enumerate(lines.items()):
        parts += _line(side, points, across, up, left, top, COLOURS[number % len(COLOURS)], number)
    return parts


def _grid(across: Scale, up: Scale, clients: Sequence[int], by: str, left: float, top: float) -> list[str]:
    bottom = top + PANEL_HEIGHT
    parts = []
    for decade in range(round(log10(up.low)), round(log10(up.high)) + 1):
        y = bottom - up.at(10.0**decade)
        label = f"{10**decade:,}" if decade >= 0 else f"{10.0**decade:g}"
        parts.append(f'<line class="grid" x1="{left}" x2="{left + PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for number in clients:
        x = left + across.at(number)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{number}</text>')
    parts.append(f'<text x="{left + PANEL_WIDTH / 2}" y="{bottom + 38}" text-anchor="middle">{escape(by)}</text>')
    parts.append(f'<line class="axis" x1="{left}" x2="{left + PANEL_WIDTH}" y1="{bottom}" y2="{bottom}"/>')
    return parts


def _line(
    side: str,
    points: Sequence[tuple[int, float]],
    across: Scale,
    up: Scale,
    left: float,
    top: float,
    colour: str,
    number: int,
) -> list[str]:
    places = [(left + across.at(clients), top + PANEL_HEIGHT - up.at(value)) for clients, value in points]
    drawn_points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    name_x = left + number * 150
    key = f'<text x="{name_x}" y="{top - 18}" style="fill: {colour}">● {escape(side)}</text>'
    return [key, f'<polyline class="line" stroke="{colour}" points="{drawn_points}"/>', *dots]
