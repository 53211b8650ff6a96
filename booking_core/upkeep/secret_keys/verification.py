"""Checks at start that the secret keys open what the database holds."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_core.upkeep.secret_keys.kinds import Kind
from booking_core.upkeep.secret_keys.service import (
    Unopened,
    holds_anything,
    unopened,
    with_stored_link_keys,
)

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


def find_problem_of_key_ids(settings: Settings, key_ids: Mapping[Kind, Collection[str]]) -> Problem | None:
    """Return the problem of a database whose sealed values name these keys: no value of a kind names a live one."""
    if settings.is_sqlite and not settings.has_secret_key:
        return _missing_key(settings) if any(key_ids.values()) else None
    live = settings.secret_keys().ids
    wrong = {kind: ids for kind, ids in key_ids.items() if not any(key_id in live for key_id in ids)}
    return _problem(settings, [Unopened(kind.plural, key_id) for kind, ids in wrong.items() for key_id in sorted(ids)])


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
