"""Write the manifest of a departure for a terminal of any width, as CSV, and as a page for printing."""

import csv
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any

from booking_cli.framework.context import Cli
from booking_cli.framework.formatting import Item, grouped_money, money, one_line, shortened
from booking_cli.framework.tables import Columns

COLUMNS = Columns(
    "booking_number status customer.name guests add_ons unpaid customer.phone customer.email note".split(),
    empty="There are no guests.",
)
_PRINTED = 80
"""The width without a terminal."""
_NAME_MIN = 16
"""The width below which names are hard to read."""

CSV_COLUMNS = (
    *("booking_number", "status", "name", "guests", "add_ons", "unpaid", "phone", "email", "note"),
    *("checked_in_at", "no_show_at"),
)
_FORMULA = tuple("=+-@＝＋－＠\t\r\n")
"""The beginnings of a text that a spreadsheet takes for a formula (OWASP)."""
_PHONE = re.compile(r"\+[0-9 ()./-]+")


def write(cli: Cli, manifest: Item) -> None:
    """Write a manifest: a block of lines for each booking in the table format, a list otherwise."""
    if cli.render.is_default_table:
        for line in lines(manifest, _width()):
            cli.render.text(line)
        return
    data = manifest["data"]
    if cli.render.format == "tsv" and not cli.render.fields:
        data = [{**entry, "guests": _party(entry), "add_ons": _add_ons(entry)} for entry in data]
    extra = {"departure": manifest["departure"], "totals": manifest["totals"]}
    cli.render.many(data, COLUMNS, extra=extra)


def _width() -> int:
    return shutil.get_terminal_size((_PRINTED, 24)).columns if sys.stdout.isatty() else _PRINTED


def _when(departure: Item) -> str:
    start, end = shortened(departure["starts_at"]), shortened(departure["ends_at"])
    return f"{start} to {end[11:] if end[:10] == start[:10] else end}"


def lines(manifest: Item, width: int) -> Iterator[str]:
    """Yield the lines of the manifest, wrapped to a width."""
    yield from _header(manifest, width)
    data = manifest["data"]
    if not data:
        yield "There are no guests."
        return
    number = max(len("#"), *(len(str(entry["booking_number"] or "")) for entry in data))
    unpaid = max(len("unpaid"), *(len(_unpaid(entry)) for entry in data))
    rest = max(2 * _NAME_MIN, width - number - unpaid - 6)
    name = min(max(_NAME_MIN, *(len(_name(entry)) for entry in data)), rest // 2)
    party = min(max(_NAME_MIN, *(len(_party_and_add_ons(entry)) for entry in data)), rest - name)
    widths = (number, name, party, unpaid)
    yield _row(("#", "guest", "party", "unpaid"), widths)
    for entry in data:
        yield from _block(entry, widths, width)


def _header(manifest: Item, width: int) -> Iterator[str]:
    departure, totals = manifest["departure"], manifest["totals"]
    title, state = one_line(departure["experience"]["title"]), departure["status"].replace("_", " ")
    yield from textwrap.wrap(f"{title}, {_when(departure)} ({state})", width)
    sold = f"{departure['seats_sold']} of {departure['seats_total']} seats sold"
    sums = [sold, _counted(totals["guests"]), _counted(totals["add_ons"])]
    sums += [f"unpaid {grouped_money(amount)}" for amount in totals["unpaid"]]
    yield from textwrap.wrap("; ".join(filter(None, sums)), width)
    yield ""


def _block(booking: Item, widths: Sequence[int], width: int) -> Iterator[str]:
    """Yield the lines of one booking: name, party and unpaid amount, then contact and note."""
    number, name, party, _ = widths
    columns = (
        [str(booking["booking_number"] or "")],
        textwrap.wrap(_name(booking), name),
        textwrap.wrap(_party_and_add_ons(booking), party),
        [_unpaid(booking)],
    )
    for cells in zip_longest(*columns, fillvalue=""):
        yield _row(cells, widths)
    indent = " " * (number + 2)
    for text in _details(booking):
        yield from textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=f"{indent}  ")


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    number, name, party, unpaid = cells
    first, second, third, last = widths
    return f"{number:>{first}}  {name:<{second}}  {party:<{third}}  {unpaid:>{last}}".rstrip()


def _name(booking: Item) -> str:
    name = one_line(booking["customer"]["name"] or "")
    mark = "x " if booking.get("checked_in_at") else "- " if booking.get("no_show_at") else ""
    return f"{mark}{name}"


def _party_and_add_ons(booking: Item) -> str:
    return ", ".join(filter(None, (_party(booking), _add_ons(booking))))


def _party(booking: Item) -> str:
    return _counted(_summed(booking["guests"], "tier_label"))


def _add_ons(booking: Item) -> str:
    return _counted(_summed(booking["add_ons"], "label"))


def _summed(items: Sequence[Item], label: str) -> Mapping[str, int]:
    """Return the counts of lines by their label."""
    counts: dict[str, int] = {}
    for line in items:
        counts[line[label]] = counts.get(line[label], 0) + line["count"]
    return counts


def _counted(counts: Mapping[str, int]) -> str:
    """Return counts as text: `2 Adult, 1 Child`."""
    return ", ".join(f"{count} {one_line(label)}" for label, count in counts.items())


def _unpaid(booking: Item) -> str:
    return grouped_money(booking["unpaid"]) if booking["unpaid"]["amount_minor"] else ""


def _contact(booking: Item) -> str:
    return one_line(", ".join(filter(None, (booking["customer"]["phone"], booking["customer"]["email"]))))


def _details(booking: Item) -> Iterator[str]:
    if booking["status"] == "pending":
        yield "pending: not paid yet"
    if contact := _contact(booking):
        yield contact
    if booking["note"]:
        yield f"note: {one_line(booking['note'])}"


def as_csv(manifest: Item) -> str:
    """Return the bookings as CSV with a header (RFC 4180).

    A text that a spreadsheet would take for a formula begins with an apostrophe: guests write names and notes.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    for booking in manifest["data"]:
        writer.writerow([_cell(value) for value in _csv_row(booking)])
    return text.getvalue()


def _csv_row(booking: Item) -> Sequence[Any]:
    customer = booking["customer"]
    return (
        booking["booking_number"],
        booking["status"],
        customer["name"],
        _party(booking),
        _add_ons(booking),
        money(booking["unpaid"]) if booking["unpaid"]["amount_minor"] else "",
        customer["phone"],
        customer["email"],
        booking["note"],
        booking.get("checked_in_at"),
        booking.get("no_show_at"),
    )


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) and not _PHONE.fullmatch(text) else text


# The page ------------------------------------------------------------------------------------------------------------


def as_html(manifest: Item) -> str:
    """Return the manifest as a page for printing, in one file."""
    departure = manifest["departure"]
    title = f"{departure['experience']['title']}, {_when(departure)}"
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    style = Path(__file__).with_name("manifest.css").read_text(encoding="utf-8")
    body = "\n".join((*_page_header(manifest), *_page_table(manifest["data"])))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>{head}<title>{escape(title)}</title>'
        f"<style>\n{style}</style></head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _page_header(manifest: Item) -> Iterator[str]:
    departure, totals = manifest["departure"], manifest["totals"]
    state = departure["status"].replace("_", " ")
    yield f"<h1>{escape(departure['experience']['title'])}</h1>"
    yield f'<p class="when">{escape(_when(departure))}<span class="state">{escape(state)}</span></p>'
    sums = {
        "Seats sold": f"{departure['seats_sold']} of {departure['seats_total']}",
        "Guests": _counted(totals["guests"]),
        "Add-ons": _counted(totals["add_ons"]),
        "Unpaid": ", ".join(map(grouped_money, totals["unpaid"])),
    }
    items = (f"<li>{name}: <b>{escape(text)}</b></li>" for name, text in sums.items() if text)
    yield f'<ul class="sums">{"".join(items)}</ul>'


def _page_table(bookings: Sequence[Item]) -> Iterator[str]:
    if not bookings:
        yield '<p class="empty">There are no guests.</p>'
        return
    columns = '<th class="box"><th class="number">No.<th>Guest<th class="party">Party<th class="amount">Unpaid'
    yield f"<table><thead><tr>{columns}</tr>"
    yield "</thead><tbody>"
    yield from map(_page_row, bookings)
    yield "</tbody></table>"


def _page_row(booking: Item) -> str:
    is_gone = booking.get("no_show_at") is not None
    mark = "✓" if booking.get("checked_in_at") else "–" if is_gone else ""
    party = [_party(booking), _add_ons(booking)]
    cells = (
        f'<td class="box"><span>{mark}</span></td>',
        f'<td class="number">{escape(str(booking["booking_number"] or ""))}</td>',
        f"<td>{''.join(_person(booking))}</td>",
        f"<td class=party>{'<br>'.join(escape(text) for text in party if text)}</td>",
        f'<td class="amount">{escape(_unpaid(booking))}</td>',
    )
    return f"<tr{' class=gone' if is_gone else ''}>{''.join(cells)}</tr>"


def _person(booking: Item) -> Iterator[str]:
    yield f'<div class="name">{escape(one_line(booking["customer"]["name"] or ""))}</div>'
    if contact := _contact(booking):
        yield f'<div class="contact">{escape(contact)}</div>'
    if booking["status"] == "pending":
        yield '<div class="contact pending">pending: not paid yet</div>'
    if booking["note"]:
        yield f'<div class="note"><b>Note:</b> {escape(booking["note"])}</div>'
