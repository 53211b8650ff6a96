"""`booking report`: the sales, the occupancy and the webhooks of an organization, read from the database."""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from booking_cli.framework.arguments import day, is_there
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import bad_file
from booking_cli.framework.formatting import bar, block, grouped_money
from booking_cli.framework.options import Org, option
from booking_cli.framework.tables import Columns
from booking_cli.operator import transactions
from booking_cli.operator.transactions import by_slug
from booking_core.models.json import JsonObject

if TYPE_CHECKING:
    from booking_core.base.context import Actor
    from booking_core.db.engine import Tx

app = command_app()


DAYS = 28
"""By default the report begins so many days before today, and ends so many days after it."""
STATES = ("succeeded", "queued", "retrying", "failed", "dead")
COLUMNS = ("section", "name", "state", "count", "seats", "seats_total", "amount")
_BAR_WIDTH = 16
_CHART_HEIGHT = 4
_CHART_WIDTH = 76
_STRIP_WIDTH = 31
_TITLE = 28
_TEMPLATE = Path(__file__).parents[1] / "operator" / "report.html"


@command(app, "report")
def report(
    cli: Cli,
    org: Org,
    first: Annotated[
        str | None, option("--from DAY", "The first day; by default 28 days before today.", parser=day)
    ] = None,
    last: Annotated[
        str | None,
        option("--to DAY", "The last day, at most 92 days later; by default 28 days after today.", parser=day),
    ] = None,
    html: Annotated[Path | None, option("--html FILE", "Write it as a page, too (mode 0600).", dir_okay=False)] = None,
) -> None:
    """Report sales, cancellations and webhook deliveries until today, and the occupancy from today on.

    Days are in the organization's time zone. A sale is a confirmed booking, on the day of its creation; amounts are
    prices after discounts, however they are paid. With -o tsv, a line has a section, a name and its numbers. An
    existing FILE is replaced after a question.

    Examples:
        booking report --org fjord-tours
        booking report --org fjord-tours --from 2026-11-01 --to 2026-11-30 -o json
        booking report --org fjord-tours --html report.html     (for printing)
    """
    from booking_core import bookings, webhooks

    if html and is_there(html):
        cli.confirm(f"Replace {html}?")

    def query(tx: "Tx", actor: "Actor") -> JsonObject:
        zone = actor.organization.zone
        today = zone.wall(actor.at).date()
        begin = date.fromisoformat(first) if first else today - timedelta(DAYS)
        end = date.fromisoformat(last) if last else today + timedelta(DAYS)
        data = bookings.get_report(tx, actor, date_from=begin, date_to=end)
        return data | {"webhooks": webhooks.count_deliveries(tx, actor, since=zone.day_start(begin))}

    data = transactions.read(cli, by_slug(org), query)
    if html:
        _write_page(cli, html, data)
    if cli.render.is_default_table:
        _write(cli, data)
    elif cli.render.format == "tsv" and not cli.render.fields:
        cli.render.many(list(_lines(data)), COLUMNS)
    else:
        cli.render.one(data)


def _write_page(cli: Cli, file: Path, data: JsonObject) -> None:
    """Write the page for its owner alone: it has sales, and URLs of webhooks."""
    from booking_core.base import private_files

    try:
        private_files.replace(file, _page(data).encode())
    except OSError as error:
        raise bad_file(file, f"cannot be written: {error.strerror}") from None
    cli.render.note(f"wrote {file}")


def _page(data: JsonObject) -> str:
    """Return the report as a page in one file."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["amounts"] = _amounts
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(data, states=STATES)


def _amounts(amounts: Sequence[JsonObject]) -> str:
    return ", ".join(map(grouped_money, amounts)) or "-"


def _amount(amounts: Sequence[JsonObject]) -> JsonObject | str:
    """Return an amount for a cell of a table, which aligns it; amounts of several currencies as text."""
    return amounts[0] if len(amounts) == 1 else _amounts(amounts)


def _lines(data: JsonObject) -> Iterator[JsonObject]:
    """Yield a line for each number of the report; one of sales for each currency."""
    for section, name in (("days", "date"), ("experiences", "title"), ("cancellations", "reason")):
        for row in data[section]:
            for amount in row["amounts"] or [None]:
                yield row | {"section": section, "name": row[name], "count": row["bookings"], "amount": amount}
    for row in data["occupancy"]:
        seats = {"seats": row["seats_sold"], "seats_total": row["seats_total"]}
        yield {"section": "occupancy", "name": row["date"], "count": row["departures"], **seats}
    for row in data["webhooks"]:
        for state in STATES:
            yield {"section": "webhooks", "name": row["url"], "state": state, "count": row["deliveries"][state]}


# On a terminal ---------------------------------------------------------------------------------------------------


def _write(cli: Cli, data: JsonObject) -> None:
    render, totals = cli.render, data["totals"]
    render.heading(
        f"{data['organization']['name']}, {data['from']} to {data['to']}, {data['organization']['timezone']}"
    )
    for text in _chart([(row["date"], row["bookings"]) for row in data["days"]]):
        render.text(text)
    states = f"{totals['pending']} pending, {totals['cancelled']} cancelled"
    render.text(f"{totals['bookings']} sales, {totals['seats']} seats, {_amounts(totals['amounts'])}; {states}")
    _write_section(cli, "Sales by experience", data["experiences"], "title")
    _write_section(cli, "Cancellations", data["cancellations"], "reason")
    _write_occupancy(cli, data)
    if data["webhooks"]:
        render.text("")
        render.heading("Webhook deliveries")
        rows = [_webhook(endpoint) for endpoint in data["webhooks"]]
        render.many(rows, Columns(("endpoint", *STATES, "share"), truncated={"endpoint": _TITLE}))


def _chart(values: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Yield the lines of a chart with a column for each day, or for some days together where they are many."""
    if not values:
        return
    per = -(-len(values) // _CHART_WIDTH)
    wide = 2 if len(values) * 2 <= _CHART_WIDTH else 1
    groups = [values[start : start + per] for start in range(0, len(values), per)]
    sums = [sum(number for _, number in group) for group in groups]
    for level in reversed(range(_CHART_HEIGHT)):
        cells = (block(total * _CHART_HEIGHT - level * max(sums), max(sums)) * wide for total in sums)
        yield "".join(cells).rstrip() or "."
    axis = "".join(f"{group[0][0][5:]:<{7 * wide}}" for group in groups[::7])
    yield axis.rstrip() + f"   highest: {max(sums)} sales"


def _write_section(cli: Cli, title: str, rows: Sequence[JsonObject], name: str) -> None:
    """Write the rows that have bookings, each with a bar of its share of the largest."""
    most = max((row["bookings"] for row in rows), default=0)
    entries = [
        {name: row[name], "bookings": row["bookings"], "seats": row["seats"], "amount": _amount(row["amounts"])}
        | {"share": bar(row["bookings"], most, _BAR_WIDTH)}
        for row in rows
        if row["bookings"]
    ]
    cli.render.text("")
    cli.render.heading(title)
    columns = (name, "bookings", "seats", "share", "amount")
    cli.render.many(entries, Columns(columns, empty="None.", truncated={name: _TITLE}))


def _write_occupancy(cli: Cli, data: JsonObject) -> None:
    """Write a strip for each experience: a space for days without departures, else a block of the seats sold. In a long
    window a block has several days: the strip fits into 80 columns."""
    per = -(-len(data["occupancy"]) // _STRIP_WIDTH)
    cli.render.text("")
    cli.render.heading("Seats sold from today on" + (f", {per} days in a block" if per > 1 else ""))
    strips = [
        ("all", data["occupancy"]),
        *((experience["title"], experience["occupancy"]) for experience in data["experiences"]),
    ]
    rows = []
    for title, days in strips:
        sold, total = _seats(days)
        if total:
            strip = "".join(block(*_seats(days[start : start + per])) for start in range(0, len(days), per))
            rows.append({"experience": title, "days": f"|{strip}|", "seats": f"{sold}/{total}"})
    columns = ("experience", "days", "seats")
    cli.render.many(rows, Columns(columns, empty="No departures.", truncated={"experience": _TITLE}))


def _seats(days: Sequence[JsonObject]) -> tuple[int, int]:
    return sum(day["seats_sold"] for day in days), sum(day["seats_total"] for day in days)


def _webhook(endpoint: JsonObject) -> JsonObject:
    counts: JsonObject = endpoint["deliveries"]
    name = endpoint["description"] or endpoint["url"]
    return counts | {
        "endpoint": name if endpoint["status"] == "enabled" else f"({endpoint['status']}) {name}",
        "share": bar(counts["succeeded"], sum(counts.values()), _BAR_WIDTH // 2),
    }
