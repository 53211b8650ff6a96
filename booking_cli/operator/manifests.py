"""Write the manifest of a departure for a terminal of any width, and for paper."""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from booking_cli.framework.context import Cli
from booking_cli.framework.formatting import money, one_line, shortened
from booking_cli.framework.manifest_files import counted, summed

COLUMNS = tuple("booking_number status customer.name guests add_ons unpaid customer.phone customer.email note".split())
"""The columns of TSV."""
_PRINTED = 80
"""The width without a terminal."""
_NAME_MIN = 16
"""The width below which names are hard to read."""

Item = Mapping[str, Any]


def write(cli: Cli, manifest: Item) -> None:
    """Write a manifest: a block of lines for each booking in the table format, a list otherwise."""
    if cli.render.is_default_table:
        for line in lines(manifest, _width()):
            cli.render.text(line)
        return
    data = manifest["data"]
    if cli.render.format == "tsv" and not cli.render.fields:
        data = [{**each, "guests": _party(each["guests"]), "add_ons": _add_ons(each["add_ons"])} for each in data]
    extra = {"departure": manifest["departure"], "totals": manifest["totals"]}
    cli.render.many(data, COLUMNS, empty="There are no guests.", extra=extra)


def _width() -> int:
    return shutil.get_terminal_size((_PRINTED, 24)).columns if sys.stdout.isatty() else _PRINTED


def lines(manifest: Item, width: int) -> Iterator[str]:
    """Yield the lines of the manifest, wrapped to a width."""
    yield from _header(manifest, width)
    data = manifest["data"]
    if not data:
        yield "There are no guests."
        return
    number = max(len("#"), *(len(str(each["booking_number"] or "")) for each in data))
    unpaid = max(len("unpaid"), *(len(_unpaid(each)) for each in data))
    left = max(2 * _NAME_MIN, width - number - unpaid - 6)
    name = min(max(_NAME_MIN, *(len(_name(each)) for each in data)), left // 2)
    party = min(max(_NAME_MIN, *(len(_party_and_add_ons(each)) for each in data)), left - name)
    widths = (number, name, party, unpaid)
    yield _row(("#", "guest", "party", "unpaid"), widths)
    for each in data:
        yield from _block(each, widths, width)


def _header(manifest: Item, width: int) -> Iterator[str]:
    departure, totals = manifest["departure"], manifest["totals"]
    start, end = shortened(departure["starts_at"]), shortened(departure["ends_at"])
    until = end[11:] if end[:10] == start[:10] else end
    title = one_line(departure["experience"]["title"])
    yield from textwrap.wrap(f"{title}, {start} to {until} ({departure['status'].replace('_', ' ')})", width)
    sold = f"{departure['seats_sold']} of {departure['seats_total']} seats sold"
    sums = [sold, counted(totals["guests"]), counted(totals["add_ons"])]
    sums += [f"unpaid {money(each)}" for each in totals["unpaid"]]
    yield from textwrap.wrap("; ".join(filter(None, sums)), width)
    yield ""


def _block(booking: Item, widths: Sequence[int], width: int) -> Iterator[str]:
    """Yield the lines of one booking: name, party and unpaid amount, then contact and note."""
    number, name, party, _ = widths
    names = textwrap.wrap(_name(booking), name) or [""]
    parties = textwrap.wrap(_party_and_add_ons(booking), party) or [""]
    for i in range(max(len(names), len(parties))):
        cells = (str(booking["booking_number"] or "") if i == 0 else "", _at(names, i), _at(parties, i))
        yield _row((*cells, _unpaid(booking) if i == 0 else ""), widths)
    indent = " " * (number + 2)
    for text in _details(booking):
        yield from textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=f"{indent}  ")


def _at(texts: Sequence[str], i: int) -> str:
    return texts[i] if i < len(texts) else ""


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    number, name, party, unpaid = cells
    first, second, third, last = widths
    return f"{number:>{first}}  {name:<{second}}  {party:<{third}}  {unpaid:>{last}}".rstrip()


def _name(booking: Item) -> str:
    name = one_line(booking["customer"]["name"] or "")
    mark = "x " if booking.get("checked_in_at") else "- " if booking.get("no_show_at") else ""
    return f"{mark}{name}"


def _party_and_add_ons(booking: Item) -> str:
    return ", ".join(filter(None, (_party(booking["guests"]), _add_ons(booking["add_ons"]))))


def _party(guests: Sequence[Item]) -> str:
    return counted(summed(guests, "tier_label"))


def _add_ons(add_ons: Sequence[Item]) -> str:
    return counted(summed(add_ons, "label"))


def _unpaid(booking: Item) -> str:
    return money(booking["unpaid"]) if booking["unpaid"]["amount_minor"] else ""


def _details(booking: Item) -> Iterator[str]:
    if booking["status"] == "pending":
        yield "pending: not paid yet"
    contact = ", ".join(filter(None, (booking["customer"]["phone"], booking["customer"]["email"])))
    if contact:
        yield one_line(contact)
    if booking["note"]:
        yield f"note: {one_line(booking['note'])}"
