"""`booking secrets`: which secret key sealed what, and all of it sealed anew by the key in use."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from booking_cli.framework import context
from booking_cli.framework.command import command, group
from booking_cli.framework.context import Cli
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.context import Installation
    from booking_core.db.engine import Database
    from booking_core.secret_keys import Count

app = group("What the keys of BOOKING_SECRET_KEY seal. These commands open the database.")

COLUMNS = ("kind", "values", "state", "key_id", "place")
RESEALED = ("kind", "resealed", "lost")


@command(app, "status", "booking secrets status", "booking secrets status -o json")
def status(ctx: typer.Context) -> None:
    """Counts what each secret key seals, and says which key can be taken out of BOOKING_SECRET_KEY.

    \b
    current     sealed with the first key
    to_reseal   sealed with another key of the list, or by an earlier release: booking secrets reseal
    lost        no key of the list opens it

    A key is named by its id, which tells nothing of it, and by its place in the list. A guest's link counts for the key
    that it needs; one that has expired needs none.
    """
    cli = context.of(ctx)
    with storage.database(cli) as database:
        from booking_core import secret_keys

        known = _installation(database)
        counts = secret_keys.status(database, known.secret_keys)
    keys = _keys(known, counts)
    cli.render.many(
        [_shown(known, each) for each in counts], COLUMNS, empty="Nothing is sealed yet.", beside={"keys": keys}
    )
    for key in keys:
        _note(cli, key)


@command(
    app,
    "reseal",
    "booking secrets reseal",
    "booking secrets reseal --new-links     (somebody else may know the old key)",
    shape="resealed",
    changes=True,
)
def reseal(
    ctx: typer.Context,
    new_links: Annotated[
        bool,
        typer.Option("--new-links", help="Give bookings new links; those in guests' mails stop opening at once."),
    ] = False,
) -> int:
    """Seals with the first key of BOOKING_SECRET_KEY what other keys of the list sealed, so that those can be dropped.

    It runs beside the service, a few values at a time. One that was interrupted goes on where it stopped; run twice it
    changes nothing. Every process must have the new key in its list before.

    Guests' links stay as they are and open until they expire, also when the old key is gone. Cursors of lists that the
    old key signed end with it: who pages through a list then begins it again. Exit code 12 when some values are sealed
    with a key that is not in the list; they are left as they are.
    """
    cli = context.of(ctx)
    if new_links:
        cli.confirm("Every link that guests have from an earlier key stops opening. Go on?")
    with storage.database(cli) as database, cli.render.progress("sealing anew") as advance:
        from booking_core import secret_keys

        keys = _installation(database).secret_keys
        done = secret_keys.reseal(database, keys, progress=advance)
        shown: list[dict[str, Any]] = [
            {"kind": each.kind, "resealed": each.resealed, "lost": each.lost} for each in done
        ]
        if new_links:
            made = secret_keys.make_new_links(database, keys)
            shown.append({"kind": "guest_link", "resealed": made, "lost": 0})
    cli.render.many(shown, RESEALED)
    lost = sum(each.lost for each in done)
    if lost:
        cli.render.warn(f"{lost} values are sealed with a key that is not in BOOKING_SECRET_KEY.")
    cli.render.note("booking secrets status says which key can be dropped.")
    return ExitCode.PARTIAL if lost else ExitCode.OK


def _installation(database: "Database") -> "Installation":
    from booking_core import secret_keys

    return secret_keys.with_link_keys(database, storage.installation(storage.settings()))


def _place(known: "Installation", key_id: str | None) -> int | None:
    """The place of a key in the list, counted from 1."""
    ids = known.secret_keys.ids
    return ids.index(key_id) + 1 if key_id in ids else None


def _shown(known: "Installation", count: "Count") -> dict[str, Any]:
    return {
        "kind": count.kind,
        "values": count.values,
        "state": count.state.value,
        "key_id": count.key_id,
        "place": _place(known, count.key_id),
    }


def _keys(known: "Installation", counts: "list[Count]") -> list[dict[str, Any]]:
    """Each key of the list, and each that is missing from it, with how many values need it."""
    needed: Counter[str] = Counter()
    for count in counts:
        if count.key_id:
            needed[count.key_id] += count.values
    ids = [*known.secret_keys.ids, *sorted(set(needed).difference(known.secret_keys.ids))]
    first = known.secret_keys.first_id
    return [
        {
            "key_id": each,
            "place": _place(known, each),
            "values": needed[each],
            "can_be_dropped": each != first and not needed[each],
        }
        for each in ids
    ]


def _note(cli: Cli, key: dict[str, Any]) -> None:
    if key["place"] is None:
        cli.render.warn(f"Key {key['key_id']} is not in BOOKING_SECRET_KEY, and {key['values']} values need it.")
    elif key["place"] > 1 and key["values"]:
        cli.render.note(
            f"Key {key['key_id']} (place {key['place']}) is needed for {key['values']} values: booking secrets reseal"
        )
    elif key["place"] > 1:
        cli.render.note(f"Key {key['key_id']} (place {key['place']}) is used by nothing: it can be dropped.")
