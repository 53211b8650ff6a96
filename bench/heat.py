"""The heat map of a matrix: a panel for each side, a square for each cell, as an SVG by hand."""

from html import escape
from math import log10

from bench.kinds import Mapped, Ratio, Row

CELL_WIDTH, CELL_HEIGHT = 76, 22
NAMES, TOP, GAP, BOTTOM = 190, 96, 40, 64
INK, PALE = "#37352f", "#ffffff"
WITHIN, ABOVE = ("#f4f8f9", "#8fc1d4"), ("#f6c18f", "#a3200d")
"""Colours from no wait to the limit, and from the limit to a hundred times as much. Each cell also has its figure."""
WORST = 100.0
_STYLE = f"""<style>
text {{ font: 12px sans-serif; fill: {INK} }} .title {{ font-size: 14px; font-weight: bold }}
.bold {{ font-weight: bold }} .none {{ fill: #efefef }}
</style>"""


def drawn(outcome: Mapped) -> str:
    """Draw a panel for each side, beside each other, and the scale below them."""
    columns = len(outcome.entry.columns)
    panel = NAMES + columns * CELL_WIDTH + GAP
    rows = max(len(each) for each in outcome.sides.values())
    width, height = panel * len(outcome.sides), TOP + rows * CELL_HEIGHT + BOTTOM
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">', _STYLE]
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for place, (side, found) in enumerate(outcome.sides.items()):
        parts += _panel(outcome, side, found, place * panel)
    parts += _scale(outcome, TOP + rows * CELL_HEIGHT + 24)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(outcome: Mapped, side: str, rows: list[Row], left: float) -> list[str]:
    limit = outcome.entry.at_most[side]
    title = f"{outcome.entry.measures}, {side}: at most {limit:g} times"
    parts = [f'<text class="title" x="{left + 12}" y="28">{escape(title)}</text>']
    for number, column in enumerate(outcome.entry.columns):
        x = left + NAMES + (number + 0.5) * CELL_WIDTH
        parts.append(f'<text x="{x:.1f}" y="{TOP - 10}" text-anchor="middle">{escape(column)}</text>')
    for number, row in enumerate(rows):
        parts += _row(outcome, side, row, left, TOP + number * CELL_HEIGHT)
    return parts


def _row(outcome: Mapped, side: str, row: Row, left: float, top: float) -> list[str]:
    weight = "" if outcome.is_met(side, row) else ' class="bold"'
    name = row.name + (" (!)" if row.failures else "")
    parts = [f'<text{weight} x="{left + NAMES - 10}" y="{top + 15}" text-anchor="end">{escape(name)}</text>']
    for number, column in enumerate(outcome.entry.columns):
        parts += _cell(row.cells.get(column), outcome.entry.at_most[side], left + NAMES + number * CELL_WIDTH, top)
    return parts


def _cell(ratio: Ratio | None, limit: float, x: float, y: float) -> list[str]:
    size = f'width="{CELL_WIDTH - 2}" height="{CELL_HEIGHT - 2}"'
    if ratio is None:
        return [f'<rect class="none" x="{x}" y="{y}" {size}/>']
    ink = f' style="fill: {PALE}"' if ratio.value > limit * 8 else ""
    shown = f"{ratio.value:.1f}" if ratio.value < 10 else f"{ratio.value:,.0f}"
    return [
        f'<rect x="{x}" y="{y}" {size} fill="{colour(ratio.value, limit)}"/>',
        f'<text{ink} x="{x + CELL_WIDTH / 2 - 1}" y="{y + 15}" text-anchor="middle">{shown}</text>',
    ]


def colour(value: float, limit: float) -> str:
    """Return the colour of a ratio: blue up to the limit, from orange to red above it, on a logarithmic scale."""
    if value <= limit:
        return _between(*WITHIN, value / limit)
    return _between(*ABOVE, min(1.0, log10(value / limit) / log10(WORST)))


def _between(low: str, high: str, share: float) -> str:
    first, last = ([int(each[at : at + 2], 16) for at in (1, 3, 5)] for each in (low, high))
    mixed = (round(a + (b - a) * share) for a, b in zip(first, last, strict=True))
    return "#" + "".join(f"{each:02x}" for each in mixed)


def _scale(outcome: Mapped, top: float) -> list[str]:
    limit = next(iter(outcome.entry.at_most.values()))
    steps = (0.0, 0.5, 1.0, 1.01, 3.0, 10.0, 30.0, 100.0)
    words = ("0", "½ of the limit", "the limit", "above", "3 × the limit", "10 ×", "30 ×", "100 × and more")
    parts = []
    for number, (step, word) in enumerate(zip(steps, words, strict=True)):
        x = 12 + number * 130
        parts.append(f'<rect x="{x}" y="{top}" width="18" height="14" fill="{colour(step * limit, limit)}"/>')
        parts.append(f'<text x="{x + 24}" y="{top + 11}">{word}</text>')
    note = "(!) something was lost, sent twice or answered 5xx; grey: not measured"
    return [*parts, f'<text x="12" y="{top + 32}">{escape(note)}</text>']
