"""Write the manifest of a departure as CSV, and as a page for printing."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from booking_cli.framework.formatting import money, one_line, shortened

Item = Mapping[str, Any]

CSV_COLUMNS = (
    *("booking_number", "status", "name", "guests", "add_ons", "unpaid", "phone", "email", "note"),
    *("checked_in_at", "no_show_at"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_PHONE = re.compile(r"\+[0-9 ()./-]+")


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
        counted(summed(booking["guests"], "tier_label")),
        counted(summed(booking["add_ons"], "label")),
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


def summed(items: Sequence[Item], label: str) -> Mapping[str, int]:
    """Return the counts of lines by their label."""
    counts: dict[str, int] = {}
    for line in items:
        counts[line[label]] = counts.get(line[label], 0) + line["count"]
    return counts


def counted(counts: Mapping[str, int]) -> str:
    """Return counts as text: `2 Adult, 1 Child`."""
    return ", ".join(f"{count} {one_line(label)}" for label, count in counts.items())


# The page ------------------------------------------------------------------------------------------------------------

_STYLE = """
@page { size: A4; margin: 14mm 12mm; }
* { box-sizing: border-box; }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1.25rem; color: #111; background: #fff;
  font: 15px/1.4 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0 0 .25rem; }
.when { font-size: 1.05rem; margin: 0 0 .75rem; }
.state { display: inline-block; border: 1px solid #555; border-radius: .2rem; font-size: .8em; margin-left: .5rem;
  padding: 0 .4rem; text-transform: uppercase; letter-spacing: .04em; }
.sums { display: flex; flex-wrap: wrap; gap: .35rem 2rem; margin: 0 0 1.25rem; padding: 0; list-style: none; }
.sums b { font-weight: 600; }
table { border-collapse: collapse; width: 100%; }
th { border-bottom: 2px solid #111; font-size: .8rem; text-align: left; text-transform: uppercase;
  letter-spacing: .03em; padding: .3rem .5rem .3rem 0; }
td { border-bottom: 1px solid #bbb; padding: .5rem .5rem .5rem 0; vertical-align: top; overflow-wrap: anywhere; }
tr { break-inside: avoid; }
thead { display: table-header-group; }
.box { width: 2rem; }
.box span { display: block; width: 1.1rem; height: 1.1rem; border: 1.5px solid #111; border-radius: .15rem;
  font-weight: 700; line-height: 1rem; text-align: center; }
.number, .amount { white-space: nowrap; font-variant-numeric: tabular-nums; }
th.number, td.number { text-align: right; padding-right: .9rem; }
th.amount, td.amount { text-align: right; padding-right: 0; }
.party { width: 30%; }
td.amount { font-weight: 600; }
.name { font-weight: 600; }
.contact, .note { color: #333; font-size: .88rem; }
.note { white-space: pre-line; }
.note b, .pending { font-weight: 600; }
.gone .name { text-decoration: line-through; }
.empty { margin: 2rem 0; }
@media screen and (max-width: 40rem) {
  thead, td.number { display: none; }
  tr { display: grid; grid-template-columns: 2rem 1fr auto; border-bottom: 1px solid #bbb; padding: .6rem 0; }
  td { border: 0; padding: 0; }
  td.box { grid-row: 1 / 3; }
  td.amount { grid-area: 1 / 3; padding-left: 1rem; }
  td.party { grid-area: 2 / 2 / 3 / 4; width: auto; }
}
@media print { body { margin: 0; max-width: none; padding: 0; font-size: 11pt; } }
"""


def as_html(manifest: Item) -> str:
    """Return the manifest as a page for printing, in one file."""
    departure = manifest["departure"]
    title = f"{departure['experience']['title']}, {_when(departure)}"
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    body = "\n".join((*_header(manifest), *_table(manifest["data"])))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>{head}<title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _when(departure: Item) -> str:
    start, end = shortened(departure["starts_at"]), shortened(departure["ends_at"])
    return f"{start} to {end[11:] if end[:10] == start[:10] else end}"


def _header(manifest: Item) -> Iterator[str]:
    departure, totals = manifest["departure"], manifest["totals"]
    state = departure["status"].replace("_", " ")
    yield f"<h1>{escape(departure['experience']['title'])}</h1>"
    yield f'<p class="when">{escape(_when(departure))}<span class="state">{escape(state)}</span></p>'
    sums = {
        "Seats sold": f"{departure['seats_sold']} of {departure['seats_total']}",
        "Guests": counted(totals["guests"]),
        "Add-ons": counted(totals["add_ons"]),
        "Unpaid": ", ".join(money(each) for each in totals["unpaid"]),
    }
    items = (f"<li>{name}: <b>{escape(text)}</b></li>" for name, text in sums.items() if text)
    yield f'<ul class="sums">{"".join(items)}</ul>'


def _table(bookings: Sequence[Item]) -> Iterator[str]:
    if not bookings:
        yield '<p class="empty">There are no guests.</p>'
        return
    columns = '<th class="box"><th class="number">No.<th>Guest<th class="party">Party<th class="amount">Unpaid'
    yield f"<table><thead><tr>{columns}</tr>"
    yield "</thead><tbody>"
    yield from map(_row, bookings)
    yield "</tbody></table>"


def _row(booking: Item) -> str:
    is_gone = booking.get("no_show_at") is not None
    mark = "✓" if booking.get("checked_in_at") else "–" if is_gone else ""
    party = [counted(summed(booking["guests"], "tier_label")), counted(summed(booking["add_ons"], "label"))]
    cells = (
        f'<td class="box"><span>{mark}</span></td>',
        f'<td class="number">{escape(str(booking["booking_number"] or ""))}</td>',
        f"<td>{''.join(_person(booking))}</td>",
        f"<td class=party>{'<br>'.join(escape(text) for text in party if text)}</td>",
        f'<td class="amount">{escape(money(booking["unpaid"]) if booking["unpaid"]["amount_minor"] else "")}</td>',
    )
    return f"<tr{' class=gone' if is_gone else ''}>{''.join(cells)}</tr>"


def _person(booking: Item) -> Iterator[str]:
    customer = booking["customer"]
    yield f'<div class="name">{escape(one_line(customer["name"] or ""))}</div>'
    contact = ", ".join(filter(None, (customer["phone"], customer["email"])))
    if contact:
        yield f'<div class="contact">{escape(one_line(contact))}</div>'
    if booking["status"] == "pending":
        yield '<div class="contact pending">pending: not paid yet</div>'
    if booking["note"]:
        yield f'<div class="note"><b>Note:</b> {escape(booking["note"])}</div>'
