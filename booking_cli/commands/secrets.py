"""`booking secrets`: count the values sealed with each secret key, and reseal them with the first key."""

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.options import option
from booking_cli.framework.tables import Columns
from booking_cli.operator import secret_keys as verified_keys
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.base.context import Installation
    from booking_core.db.engine import Database
    from booking_core.upkeep.secret_keys import Count

app = command_group("Rotate the secret keys of BOOKING_SECRET_KEY (operator).")

COLUMNS = Columns(("kind", "values", "state", "key_id", "place"), empty="Nothing is sealed yet.")
RESEALED = ("kind", "resealed", "lost")


@command(app, "status")
def status(cli: Cli) -> None:
    """Count the values sealed with each secret key, and show which keys can be removed from BOOKING_SECRET_KEY.

    \b
    current     sealed with the first key
    to_reseal   sealed with another key of the list: run booking
                secrets reseal
    lost        no key of the list opens it

    A key is shown by its id and its place in the list, never by its value. A guest's link counts for the key that it
    was made with, until it expires.

    Examples:
        booking secrets status
        booking secrets status -o json
    """
    with storage.open_database(cli) as database:
        from booking_core.upkeep import secret_keys

        installation = _installation(database)
        counts = secret_keys.status(database, installation.secret_keys)
    keys = _keys(installation, counts)
    cli.render.many([_row(installation, count) for count in counts], COLUMNS, extra={"keys": keys})
    for key in keys:
        _note(cli, key)


@command(app, "reseal", shape="resealed", changes=True)
def reseal(
    cli: Cli,
    new_links: Annotated[
        bool, option("--new-links", "Also replace guests' links; links in sent mails stop working at once.")
    ] = False,
) -> int:
    """Reseal all values with the first key of BOOKING_SECRET_KEY; then the other keys can be removed.

    It can run beside the service, and continues where it stopped if it is run again. Every process must have the new
    key in its list first.

    Guests' links stay valid until they expire, also after the old key is removed. Cursors signed with the old key
    become invalid with it: clients have to start such a list again. Exit code 12 if some values are sealed with a key
    that is not in the list; they are left unchanged.

    Examples:
        booking secrets reseal
        booking secrets reseal --new-links     (the old key may have leaked)
    """
    if new_links:
        cli.confirm("Guests' links made with an earlier key will stop working. Continue?")
    with storage.open_database(cli) as database, cli.render.progress("resealing") as advance:
        from booking_core.upkeep import secret_keys

        keys = _installation(database).secret_keys
        outcomes = secret_keys.reseal(database, keys, progress=advance)
        rows = [asdict(outcome) for outcome in outcomes]
        if new_links:
            count = secret_keys.make_new_links(database, keys)
            rows.append({"kind": "guest_link", "resealed": count, "lost": 0})
    cli.render.many(rows, RESEALED)
    lost = sum(outcome.lost for outcome in outcomes)
    if lost:
        cli.render.warn(f"{lost} values are sealed with a key that is not in BOOKING_SECRET_KEY.")
    cli.render.note("See which keys can be removed: booking secrets status")
    return ExitCode.PARTIAL if lost else ExitCode.OK


def _installation(database: "Database") -> "Installation":
    from booking_core.upkeep import secret_keys

    return secret_keys.with_link_keys(database, verified_keys.load_installation(storage.load_settings()))


def _place(installation: "Installation", key_id: str | None) -> int | None:
    """Return the place of a key in the list, counted from 1."""
    ids = installation.secret_keys.ids
    return ids.index(key_id) + 1 if key_id in ids else None


def _row(installation: "Installation", count: "Count") -> dict[str, Any]:
    return asdict(count) | {"state": count.state.value, "place": _place(installation, count.key_id)}


def _keys(installation: "Installation", counts: "list[Count]") -> list[dict[str, Any]]:
    """Return the keys of the list and the missing ones, with the number of values that need each."""
    values_by_key: Counter[str] = Counter()
    for count in counts:
        if count.key_id:
            values_by_key[count.key_id] += count.values
    ids = [*installation.secret_keys.ids, *sorted(set(values_by_key).difference(installation.secret_keys.ids))]
    first = installation.secret_keys.first_id
    return [
        {
            "key_id": key_id,
            "place": _place(installation, key_id),
            "values": values_by_key[key_id],
            "can_be_dropped": key_id != first and not values_by_key[key_id],
        }
        for key_id in ids
    ]


def _note(cli: Cli, key: dict[str, Any]) -> None:
    if key["place"] is None:
        cli.render.warn(f"Key {key['key_id']} is not in BOOKING_SECRET_KEY, and {key['values']} values need it.")
    elif key["place"] > 1 and key["values"]:
        cli.render.note(
            f"Key {key['key_id']} (place {key['place']}) is needed for {key['values']} values: booking secrets reseal"
        )
    elif key["place"] > 1:
        cli.render.note(f"Key {key['key_id']} (place {key['place']}) is not used: it can be removed.")
