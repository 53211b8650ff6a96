"""Checks at start that the secret keys open what the database holds."""

from collections.abc import Iterable
from dataclasses import dataclass

from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_core.upkeep.secret_keys.kinds import Kind
from booking_core.upkeep.secret_keys.service import (
    Unopened,
    holds_anything,
    unopened,
    unopened_of,
    with_stored_link_keys,
)
from booking_core.upkeep.secret_keys.store import Row

_HINT = (
    "put the key that sealed it after the one in use: BOOKING_SECRET_KEY=NEW,OLD; booking secrets status counts the"
    " values of each key. If that key is lost, set BOOKING_SECRET_KEY_CHECK=warn"
)


_DAMAGE_HINT = "booking doctor names each damaged value and its remedy"


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason to refuse to start: with a wrong key the service would go on selling while it signs no webhook, finds no
    gift card and opens no guest link, and it would seal more values with that key. With damage it is only a warning."""

    message: str
    hint: str
    is_refused: bool
    """False if BOOKING_SECRET_KEY_CHECK asks for a warning instead, or if a value is damaged."""
    is_damage: bool = False
    """True if the keys are right, and a value is damaged."""


def find_problem(settings: Settings, database: Database) -> Problem | None:
    """Open the first and the last values of each kind, which costs little. No key is made.

    Raises:
        SettingError: there is no secret key, or an invalid one.
    """
    with database.reading() as tx:
        at = tx.now()
        if settings.is_sqlite and not settings.has_secret_key:
            return _missing_key(settings) if holds_anything(tx, at) else None
        keys = with_stored_link_keys(tx, settings.installation()).secret_keys
        found = unopened(tx, keys, at)
    return _problem(settings, found)


def find_problem_of_values(settings: Settings, values: Iterable[tuple[Kind, Row]]) -> Problem | None:
    """Open these values, as `find_problem` does with those of a database, and name each kind of which one does not.

    Args:
        values: rows of the kinds' tables, with the columns that a value is bound to.
    """
    keys = settings.secret_keys()
    by_kind: dict[Kind, dict[tuple[str, ...], str]] = {}
    for kind, row in values:
        by_kind.setdefault(kind, {})[tuple(row[name] for name in kind.row)] = row[kind.column]
    return _problem(settings, [each for kind, texts in by_kind.items() for each in unopened_of(keys, kind, texts)])


def _problem(settings: Settings, found: list[Unopened]) -> Problem | None:
    if lost := [each for each in found if not each.is_damaged]:
        return Problem(_message(lost), _HINT, settings.refuses_wrong_key)
    if not found:
        return None
    message = f"Sealed values are damaged: {', '.join(each.plural for each in found)}."
    return Problem(message, _DAMAGE_HINT, is_refused=False, is_damage=True)


def _missing_key(settings: Settings) -> Problem:
    return Problem(
        f"BOOKING_SECRET_KEY is not set, {settings.secret_file} is missing, and the database has sealed values.",
        f"restore {settings.secret_file} from a backup, or set BOOKING_SECRET_KEY",
        is_refused=True,
    )


def _message(found: list[Unopened]) -> str:
    by_key: dict[str, list[str]] = {}
    for each in found:
        by_key.setdefault(f"sealed with key {each.key_id}" if each.key_id else "sealed with an unknown key", []).append(
            each.plural
        )
    named = "; ".join(f"{', '.join(kinds)} ({key})" for key, kinds in by_key.items())
    return f"BOOKING_SECRET_KEY does not open what this database holds: {named}."
