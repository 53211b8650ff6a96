"""Functions of secret keys: check at start that they open the database's sealed values, count these values by key, and
reseal them with the first key."""

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from booking_core.base import gift_codes, guest_links
from booking_core.base.context import Installation
from booking_core.base.errors import Unavailable
from booking_core.base.progress import Progress
from booking_core.base.settings import Settings
from booking_core.base.tokens import SecretKeys, missing_key_ids, sealing_key_id
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.waiting import Pause
from booking_core.upkeep.secret_keys import store
from booking_core.upkeep.secret_keys.store import GUEST_LINK, KINDS, LINK_KEY_PURPOSE, SealedKind

READ_AT_ONCE = 200
WRITTEN_AT_ONCE = 50
"""So few in one transaction that a booking which waits for a gift card, or on SQLite for the one writer, waits for
milliseconds."""
PAUSE_S = 0.01
"""The pause between two transactions, for other writers."""
_TRIES = 5
_WALKS = 5


class State(StrEnum):
    """The state of a sealed value."""

    CURRENT = "current"
    """The key in use sealed it, for its row."""
    TO_RESEAL = "to_reseal"
    """Another live key sealed it, and `reseal` seals it with the key in use."""
    LOST = "lost"
    """No live key opens it."""


@dataclass(frozen=True, slots=True)
class Count:
    """The number of values of a kind with one key and one state."""

    kind: str
    key_id: str | None
    """None: it is lost, and does not name its key."""
    state: State
    values: int


@dataclass(frozen=True, slots=True)
class Unopened:
    """A kind with values that do not open."""

    plural: str
    key_id: str | None
    """The missing key that a value names."""
    is_damaged: bool = False
    """True if no key is missing: the neighbours of the value open, or it names a live key."""


@dataclass(frozen=True, slots=True)
class Resealed:
    """The result of resealing one kind."""

    kind: str
    resealed: int
    lost: int
    """Values that no live key opens; they stay as they are."""


# Loading and checking --------------------------------------------------------------------------------------------


def with_link_keys(database: Database, installation: Installation) -> Installation:
    """Return the installation with the link keys of former secret keys: their links still open."""
    return database.read(lambda tx: with_stored_link_keys(tx, installation))


def with_stored_link_keys(tx: Tx, installation: Installation) -> Installation:
    """Return the same, on a connection that is open."""
    keys = installation.secret_keys
    derived = {}
    for key_id, sealed in store.link_keys(tx).items():
        opened = keys.open_or_none(LINK_KEY_PURPOSE, sealed, key_id)
        if opened:
            derived[guest_links.PURPOSE, key_id] = opened
    return replace(installation, secret_keys=keys.retaining(derived)) if derived else installation


def unopened(tx: Tx, keys: SecretKeys, at: int) -> list[Unopened]:
    """Open the first and the last values of each kind, and return the kinds with values that do not open.

    Two look-ups for each kind: cheap at every start. `status` looks at every value.

    Args:
        keys: with the link keys of former ones (`with_link_keys`).
    """
    results = [result for kind in KINDS for result in unopened_of(keys, kind, store.samples(tx, kind, at))]
    link_key = store.newest_link_key(tx, at)
    if link_key is not None and keys.derived(link_key, guest_links.PURPOSE) is None:
        results.append(Unopened("guests' links", link_key))
    return results


def unopened_of(keys: SecretKeys, kind: SealedKind, values: Mapping[tuple[str, ...], str]) -> list[Unopened]:
    """Return the missing keys of these values of a kind; or, if none is missing, whether a value is damaged.

    Args:
        values: the sealed texts by the row that each is sealed for.
    """
    closed = [text for row, text in values.items() if keys.open_or_none(kind.purpose, text, *row) is None]
    key_ids = [key_id for key_id in map(sealing_key_id, closed) if key_id not in keys.ids]
    missing = missing_key_ids(key_ids, neighbours_open=len(closed) < len(values))
    if closed and not missing:
        return [Unopened(kind.plural, None, is_damaged=True)]
    return [Unopened(kind.plural, key_id) for key_id in sorted(missing, key=str)]


def holds_anything(tx: Tx, at: int) -> bool:
    """Tell whether the database holds a value that some secret key sealed, or a link that one made."""
    return any(store.samples(tx, kind, at) for kind in KINDS) or store.newest_link_key(tx, at) is not None


_WRONG_KEY_HINT = (
    "put the key that sealed it after the one in use: BOOKING_SECRET_KEY=NEW,OLD; booking secrets status counts the"
    " values of each key. If that key is lost, set BOOKING_SECRET_KEY_CHECK=warn"
)


_DAMAGE_HINT = "booking doctor names each damaged value and its remedy"


@dataclass(frozen=True, slots=True)
class SealProblem:
    """A reason to refuse to start: with a wrong key the service would go on selling while it signs no webhook, finds no
    gift card and opens no guest link, and it would seal more values with that key. With damage it is only a warning."""

    message: str
    hint: str
    is_refused: bool
    """False if BOOKING_SECRET_KEY_CHECK asks for a warning instead, or if a value is damaged."""
    is_damage: bool = False
    """True if the keys are right, and a value is damaged."""


def find_problem(settings: Settings, database: Database) -> SealProblem | None:
    """Open the first and the last values of each kind, which costs little. No key is made.

    Raises:
        SettingError: there is no secret key, or an invalid one.
    """
    with database.reading() as tx:
        at = tx.now()
        if settings.is_sqlite and not settings.has_secret_key:
            return _missing_key(settings) if holds_anything(tx, at) else None
        keys = with_stored_link_keys(tx, settings.installation()).secret_keys
        results = unopened(tx, keys, at)
    return _problem(settings, results)


def find_problem_of_key_ids(settings: Settings, key_ids: Mapping[SealedKind, Collection[str]]) -> SealProblem | None:
    """Return the problem of a backup whose sealed values name these keys: no value of a kind names a live one."""
    if settings.is_sqlite and not settings.has_secret_key:
        return _missing_key(settings, "the backup") if any(key_ids.values()) else None
    live = settings.secret_keys().ids
    wrong = {kind: ids for kind, ids in key_ids.items() if not any(key_id in live for key_id in ids)}
    results = [Unopened(kind.plural, key_id) for kind, ids in wrong.items() for key_id in sorted(ids)]
    return _problem(settings, results, "the backup")


def _problem(settings: Settings, closed: list[Unopened], holder: str = "this database") -> SealProblem | None:
    if lost := [value for value in closed if not value.is_damaged]:
        return SealProblem(_message(lost, holder), _WRONG_KEY_HINT, settings.refuses_wrong_key)
    if not closed:
        return None
    message = f"Sealed values are damaged: {', '.join(value.plural for value in closed)}."
    return SealProblem(message, _DAMAGE_HINT, is_refused=False, is_damage=True)


def _missing_key(settings: Settings, holder: str = "the database") -> SealProblem:
    return SealProblem(
        f"BOOKING_SECRET_KEY is not set, {settings.secret_file} is missing, and {holder} has sealed values.",
        f"restore {settings.secret_file} from a backup, or set BOOKING_SECRET_KEY",
        is_refused=True,
    )


def _message(closed: list[Unopened], holder: str) -> str:
    by_key: dict[str, list[str]] = {}
    for value in closed:
        by_key.setdefault(
            f"sealed with key {value.key_id}" if value.key_id else "sealed with an unknown key", []
        ).append(value.plural)
    listing = "; ".join(f"{', '.join(kinds)} ({key})" for key, kinds in by_key.items())
    return f"BOOKING_SECRET_KEY does not open the sealed values of {holder}: {listing}."


# Counting --------------------------------------------------------------------------------------------------------


def status(database: Database, keys: SecretKeys) -> list[Count]:
    """Count the values of each kind by the key that sealed them."""
    counts = [count for kind in KINDS for count in _count(database, keys, kind)]
    return counts + _count_links(database, keys)


def _count(database: Database, keys: SecretKeys, kind: SealedKind) -> Iterator[Count]:
    with database.reading() as tx, tx.without_statement_timeout():
        by_key = store.counts(tx, kind)
    for key_id, values in sorted(by_key.items()):
        yield Count(kind.name, key_id or None, _state(keys, key_id), values)


def _state(keys: SecretKeys, key_id: str) -> State:
    if key_id == keys.first_id:
        return State.CURRENT
    return State.TO_RESEAL if key_id in keys.ids else State.LOST


def _count_links(database: Database, keys: SecretKeys) -> list[Count]:
    """Count guests' links by the key that they need: for a former one, the key that sealed its link key."""
    with database.reading() as tx, tx.without_statement_timeout():
        links, link_keys = store.open_links(tx, tx.now()), store.link_keys(tx)
    counted: Counter[tuple[str, State]] = Counter()
    for key_id, values in links.items():
        needed_key = (sealing_key_id(link_keys[key_id]) or key_id) if key_id in link_keys else key_id
        is_open = keys.derived(key_id, guest_links.PURPOSE) is not None
        counted[needed_key, _state(keys, needed_key) if is_open else State.LOST] += values
    return [Count(GUEST_LINK, key_id, state, values) for (key_id, state), values in sorted(counted.items())]


# Resealing -------------------------------------------------------------------------------------------------------


def count_to_reseal(database: Database, keys: SecretKeys) -> int:
    """Return how many values `reseal` will look at."""
    with database.reading() as tx:
        return sum(store.count_others(tx, kind, keys.first_id) for kind in KINDS)


def reseal(
    database: Database, keys: SecretKeys, *, progress: Progress = lambda count, total: None, pause: Pause = time.sleep
) -> list[Resealed]:
    """Seal with the first key, for its row, each value that another live key sealed.

    Safe beside running processes: a value is replaced only if it has not changed since it was read, in short
    transactions with pauses. An interrupted call continues when it is repeated; when all is done it changes nothing.

    Args:
        keys: with the link keys of former ones (`with_link_keys`).
        progress: called with the number of values that are done, and their total.
    """
    retain_link_keys(database, keys)
    total, count = count_to_reseal(database, keys), 0
    resealed = []
    for kind in KINDS:
        counted: Counter[str] = Counter()
        for outcome in _reseal_kind(database, keys, kind, pause):
            counted.update(outcome)
            progress(count := min(total, count + outcome.total()), total)
        resealed.append(Resealed(kind.name, counted["resealed"], counted["lost"]))
    return resealed


def _reseal_kind(database: Database, keys: SecretKeys, kind: SealedKind, pause: Pause) -> Iterator[Counter[str]]:
    """Walk the kind, and once more for values that were changed while they were resealed."""
    for _ in range(_WALKS):
        missed = 0
        for batch in _walk(database, keys, kind):
            anew = [new for row in batch if (new := _sealed_anew(keys, kind, row))]
            written = _write(database, kind, anew, pause)
            missed += len(anew) - written
            yield Counter(resealed=written, lost=len(batch) - len(anew))
        if not missed:
            return


def _walk(database: Database, keys: SecretKeys, kind: SealedKind) -> Iterator[list[store.ColumnValues]]:
    """Read the values that the first key did not seal, a batch at a time."""
    after: store.RowPosition | None = ()
    while after is not None:
        with database.reading() as tx:
            batch, after = store.others(tx, kind, keys.first_id, after, READ_AT_ONCE)
        if batch:
            yield batch


def _sealed_anew(keys: SecretKeys, kind: SealedKind, row: store.ColumnValues) -> dict[str, str] | None:
    bound_to = [row[name] for name in kind.row]
    plaintext = keys.open_or_none(kind.purpose, row[kind.column], *bound_to)
    if plaintext is None:
        return None
    anew = {name: row[name] for name in kind.key} | {"former": row[kind.column]}
    anew["sealed_anew"] = keys.seal(kind.purpose, plaintext, *bound_to)
    if kind.table is tables.gift_cards:
        anew["hashed_anew"] = gift_codes.hash_code(keys, row["organization_id"], plaintext.decode())
    return anew


def _write(database: Database, kind: SealedKind, anew: list[dict[str, str]], pause: Pause) -> int:
    written = 0
    for start in range(0, len(anew), WRITTEN_AT_ONCE):
        chunk = anew[start : start + WRITTEN_AT_ONCE]
        written += _patiently(database, partial(store.replace, kind=kind, anew=chunk), pause)
        pause(PAUSE_S)
    return written


def _patiently(database: Database, work: Callable[[Tx], int], pause: Pause) -> int:
    """Run a short transaction, again after a pause while others keep the database busy.

    Raises:
        Unavailable: it was busy every time.
    """
    for again in range(1, _TRIES + 1):
        try:
            return database.write(work)
        except Unavailable:
            if again == _TRIES:
                raise
            pause(random.uniform(0.5, 1.5) * again)
    raise AssertionError


# Guests' links ---------------------------------------------------------------------------------------------------


def retain_link_keys(database: Database, keys: SecretKeys) -> None:
    """Store the link keys of former live keys, sealed by the first key: the links outlive their secret keys."""
    for key_id in keys.ids[1:]:
        with database.reading() as tx:  # it may have to look at every booking, and no writer should wait for that
            made_links = store.made_links(tx, key_id)
        if made_links:
            database.write(partial(_retain, keys=keys, key_id=key_id))


def _retain(tx: Tx, keys: SecretKeys, key_id: str) -> None:
    derived = keys.derived(key_id, guest_links.PURPOSE)
    assert derived is not None
    if key_id not in store.link_keys(tx):
        store.retain(tx, key_id, keys.seal(LINK_KEY_PURPOSE, derived, key_id), tx.now())


def make_new_links(database: Database, keys: SecretKeys, *, pause: Pause = time.sleep) -> int:
    """Give every booking a link of the first key, and return how many got one: links that former keys made end, also
    while those keys are live. For a key that others may know, who could make the links of its bookings."""
    after: store.RowPosition | None = ()
    count = 0
    while after is not None:
        with database.reading() as tx:
            batch, after = store.former_links(tx, keys.first_id, after, READ_AT_ONCE)
        count += _patiently(database, partial(store.make_new_links, key_id=keys.first_id, bookings=batch), pause)
        pause(PAUSE_S)
    database.write(store.forget_link_keys)
    return count
