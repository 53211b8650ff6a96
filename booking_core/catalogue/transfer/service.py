"""Public functions of the catalogue, for operators.

An import publishes no event and sends no mail for new customers and gift cards, because it copies existing records.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Table

from booking_core import organizations
from booking_core.base import gift_codes, tokens
from booking_core.base.clock import Zone, zone
from booking_core.base.context import Installation, Organization
from booking_core.base.errors import Conflict
from booking_core.base.progress import Progress
from booking_core.base.tokens import SecretKeys
from booking_core.catalogue.transfer import changes, ownership, present, rules, store
from booking_core.catalogue.transfer.batches import KINDS, ImportBatch, ImportTally, split
from booking_core.catalogue.transfer.changes import CatalogueRow, Changes, Counts
from booking_core.catalogue.transfer.document import InvalidCatalogue, Note, Problem
from booking_core.catalogue.transfer.rules import Entry, Plan
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.records import departure_touches

CHUNK_ROWS = 5_000
"""Rows of one statement, far below the number that PostgreSQL's statement timeout allows."""


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The result of an import or of a dry run."""

    experiences: Counts
    departures: Counts
    customers: Counts
    gift_cards: Counts
    notes: tuple[Note, ...]
    """Differences from the document: start times near a clock change, values that stay as stored."""
    cancelled: tuple[str, ...] = ()
    """The ids of the departures that the document cancels. An import cancels no booking; the caller finds the remaining
    ones with `bookings.count_live_bookings`."""


def validate(
    document: object,
    *,
    organization: Organization | None = None,
    other_currency: bool = False,
    other_timezone: bool = False,
) -> Plan:
    """Validate a catalogue without reading stored rows, and return its plan.

    Without an organization wall time is in the file's time zone, or else UTC, and clock changes are not reported.

    Args:
        other_currency: accept amounts that are not in the organization's currency (decision B19).
        other_timezone: accept a file that names another time zone, or has offsets that the organization's zone does not
            have. Times without an offset are wall time of the organization nevertheless.

    Raises:
        InvalidCatalogue: with every problem that the file has.
    """
    local = organization.zone if organization else _zone_named(document)
    foreign: list[Problem] = []
    if organization and not other_currency:
        foreign += ownership.other_currencies(document, organization.default_currency)
    if (organization or local.name != _UNKNOWN) and not other_timezone:
        foreign += ownership.other_time_zones(document, local)
    return rules.plan(document, local, foreign)


_UNKNOWN = "UTC"


def _zone_named(document: object) -> Zone:
    name = document.get("timezone") if isinstance(document, dict) else None
    try:
        return zone(name if isinstance(name, str) else _UNKNOWN)
    except ValueError:  # a problem of shape
        return zone(_UNKNOWN)


def import_plan(
    tx: Tx,
    organization: Organization,
    installation: Installation,
    plan: Plan,
    *,
    now: int,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportSummary:
    """Import a plan that `validate` made for this organization into its catalogue, customers and gift cards, and return
    what changed.

    Entries are matched by id, then experiences by slug, departures by experience and start, gift cards by code,
    customers by e-mail. Rows and keys that the document leaves out stay as stored; null clears a key. Sold seats and
    gift card balances are never changed. Importing a document twice changes nothing the second time.

    A large plan is made before the transaction: validating a hundred thousand departures takes longer than PostgreSQL's
    timeout for idle transactions.

    Args:
        now: the instant of created and updated rows.
        dry_run: write nothing; a read transaction is enough.
        progress: is called with the done and the total number of entries. The transaction may still fail or run again.

    Raises:
        InvalidCatalogue: the plan conflicts with stored rows; nothing is written.
    """
    tx.allow_pauses()
    decided = _decide(tx, organization, installation.secret_keys, plan, now)
    if not dry_run:
        _write(tx, organization.id, installation.secret_keys, decided, now, progress or _silent)
    return ImportSummary(
        **{kind: of_kind.counts for kind, of_kind in decided.changes.items()},
        notes=plan.notes + decided.notes,
        cancelled=tuple(row["id"] for row in decided.changes["departures"].rows if row["status"] == "cancelled"),
    )


def _silent(count: int, total: int) -> None:
    """Ignore the progress."""


def import_in_batches(
    database: Database,
    organization: Organization,
    installation: Installation,
    plan: Plan,
    *,
    tally: ImportTally | None = None,
    progress: Progress | None = None,
    before_batch: Callable[[], None] = lambda: None,
) -> ImportSummary:
    """Import a plan in short transactions, after checking the whole plan against the stored rows.

    Bookings wait for one batch at most. Repeating an interrupted import completes it.

    An experience whose prices, currency or duration change, or whose departures change their starts, is written in one
    transaction with all its departures of the plan: no booking is priced by half of a change.

    Args:
        tally: counts the imported entries, also when an error or an interruption ends it.
        before_batch: is called between transactions; an exception ends the import.

    Raises:
        InvalidCatalogue: the plan conflicts with stored rows. Nothing is written, unless the rows changed meanwhile.
    """
    tally, keys = tally or ImportTally(), installation.secret_keys
    tally.expect(plan)
    decided = database.read(lambda tx: _decide(tx, organization, keys, plan, organizations.now(tx, organization)))
    counts, cancelled = dict.fromkeys(KINDS, Counts(0, 0, 0)), list[str]()
    total = sum(tally.total.values())
    for batch in split(plan, decided.inseparable):
        before_batch()
        summary = _import_batch(database, organization, installation, batch, has_begun=tally.has_begun)
        counts = {kind: counts[kind].plus(getattr(summary, kind)) for kind in KINDS}
        counts["experiences"] = counts["experiences"].plus(Counts(0, 0, -batch.continued))
        cancelled += summary.cancelled
        tally.add(batch)
        (progress or _silent)(sum(tally.imported.values()), total)
    return ImportSummary(**counts, notes=plan.notes + decided.notes, cancelled=tuple(cancelled))


def _import_batch(
    database: Database, organization: Organization, installation: Installation, batch: ImportBatch, *, has_begun: bool
) -> ImportSummary:
    def work(tx: Tx) -> ImportSummary:
        return import_plan(tx, organization, installation, batch.plan, now=organizations.now(tx, organization))

    try:
        return database.write(work)
    except InvalidCatalogue as error:
        outcome = "the entries before it stay imported" if has_begun else "nothing was imported"
        raise error.with_outcome(outcome) from None


# Changes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Decision:
    """The changes of a plan."""

    changes: Mapping[str, Changes]
    """By kind."""
    inseparable: frozenset[int]
    """The positions of experiences that are written with all their departures at once."""

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(note for of_kind in self.changes.values() for note in of_kind.notes)


def _decide(tx: Tx, organization: Organization, keys: SecretKeys, plan: Plan, now: int) -> _Decision:
    """Compare the plan with the stored rows.

    Raises:
        InvalidCatalogue: they contradict each other.
    """
    owner = organization.id
    stored = {row["id"]: row for row in store.EXPERIENCES.every(tx, owner)} if plan.experiences else {}
    tours = changes.experiences(plan.experiences, stored.values(), organization.default_currency)
    departures = _departures(tx, owner, plan.departures, tours.rows)
    tours.notes += changes.unpriced(plan.experiences, tours.rows, departures.rows)
    decided = {
        "experiences": tours,
        "departures": departures,
        "customers": _customers(tx, owner, plan.customers),
        "gift_cards": _gift_cards(tx, owner, keys, plan.gift_cards),
    }
    conflicts = _departure_conflicts(tx, owner, plan, stored, tours, departures, now)
    if problems := [*(problem for of_kind in decided.values() for problem in of_kind.problems), *conflicts]:
        raise InvalidCatalogue(problems)
    return _Decision(decided, _inseparable(stored, tours, departures))


def _inseparable(stored: Mapping[str, CatalogueRow], tours: Changes, departures: Changes) -> frozenset[int]:
    changed = (i for i, row in enumerate(tours.rows) if changes.changes_terms(stored.get(row["id"]), row))
    return frozenset((*changed, *(entry.experience for entry in departures.moved)))


def _ids(entries: Iterable[Entry]) -> list[CatalogueRow]:
    return [{"id": entry.id} for entry in entries if entry.id]


def _departures(tx: Tx, organization_id: str, entries: Sequence[Entry], tours: Sequence[CatalogueRow]) -> Changes:
    starts = (
        {"experience_id": tours[entry.experience]["id"], "starts_at": entry.values["starts_at"]} for entry in entries
    )
    by_id = store.DEPARTURES.matching(tx, organization_id, _ids(entries))
    return changes.departures(entries, tours, [*by_id, *store.DEPARTURES.matching(tx, organization_id, starts)])


def _customers(tx: Tx, organization_id: str, entries: Sequence[Entry]) -> Changes:
    keys = ({"email_key": entry.values["email_key"]} for entry in entries)
    by_key = {row["email_key"]: row for row in store.CUSTOMERS.matching(tx, organization_id, keys)}
    by_id = {row["id"]: row for row in store.CUSTOMERS.matching(tx, organization_id, _ids(entries))}
    return changes.customers(entries, by_key, by_id)


def _gift_cards(tx: Tx, organization_id: str, keys: SecretKeys, entries: Sequence[Entry]) -> Changes:
    """Compute the changes of gift cards. A stored code is found by its hash, made with any live secret key."""
    written = (entry.values["code"] for entry in entries)
    by_hash = {code_hash: code for code in written for code_hash in gift_codes.code_hashes(keys, organization_id, code)}
    rows = [
        *store.GIFT_CARDS.matching(tx, organization_id, _ids(entries)),
        *store.GIFT_CARDS.matching(tx, organization_id, ({"code_hash": code_hash} for code_hash in by_hash)),
    ]
    by_id = {
        row["id"]: row | {"code": by_hash.get(row["code_hash"]), "is_active": row["deactivated_at"] is None}
        for row in rows
    }
    return changes.gift_cards(entries, {row["code"]: row for row in by_id.values() if row["code"]}, by_id)


def _departure_conflicts(
    tx: Tx,
    organization_id: str,
    plan: Plan,
    stored: dict[str, CatalogueRow],
    tours: Changes,
    departures: Changes,
    now: int,
) -> list[Problem]:
    """Read the stored departures of changed experiences, where needed, and return their conflicts."""
    problems: list[Problem] = []
    values = {row["id"]: entry.values for entry, row in zip(plan.departures, departures.rows, strict=True)}
    for entry, row in zip(plan.experiences, tours.rows, strict=True):
        before = stored.get(row["id"])
        if before is not None and changes.affects_stored_departures(before, row):
            others = store.DEPARTURES.matching(tx, organization_id, [{"experience_id": row["id"]}])
            problems += changes.departure_conflicts(entry, before, row, others, values, now)
            tours.notes += changes.ignored_prices(entry, before, row, others, values, now)
    return problems


# Writing ---------------------------------------------------------------------------------------------------------


def _write(tx: Tx, organization_id: str, keys: SecretKeys, decided: _Decision, now: int, progress: Progress) -> None:
    """Write the changes, in the order of every transaction's locks: departures, gift cards, customers."""
    of = decided.changes
    steps = (
        _write_rows(tx, tables.experiences, organization_id, of["experiences"], now),
        _write_departures(tx, organization_id, of["departures"], now),
        _write_gift_cards(tx, organization_id, keys, of["gift_cards"], now),
        _write_rows(tx, tables.customers, organization_id, of["customers"], now),
    )
    written, total = 0, sum(len(of_kind.rows) for of_kind in of.values())
    progress(written, total)
    for step in steps:
        for count in filter(None, step):
            written += count
            progress(written, total)


def _write_departures(tx: Tx, organization_id: str, decided: Changes, now: int) -> Iterator[int]:
    store.vacate(tx, organization_id, decided.vacated)
    changed = sorted(decided.updated, key=lambda row: str(row["id"]))
    for chunk in _chunks(changed):
        totals = {row["id"]: row["seats_total"] for row in chunk if "seats_total" in row}
        departure_touches.resize(tx, organization_id, totals, at=now)
    without_seats = [{key: value for key, value in row.items() if key != "seats_total"} for row in changed]
    new = [row | {"seats_ceiling": row["seats_total"]} for row in decided.created]
    yield from _write_rows(
        tx, tables.departures, organization_id, replace(decided, updated=without_seats, created=new), now
    )
    for chunk in _chunks([*changed, *new]):
        departure_touches.touch(tx, organization_id, (row["id"] for row in chunk), at=now)
        tx.flush()


def _write_gift_cards(tx: Tx, organization_id: str, keys: SecretKeys, decided: Changes, now: int) -> Iterator[int]:
    def stored(rows: Iterable[CatalogueRow]) -> list[CatalogueRow]:
        return [_stored_gift_card(keys, organization_id, row, now) for row in rows]

    sealed = replace(decided, updated=stored(decided.updated), created=stored(decided.created))
    yield from _write_rows(tx, tables.gift_cards, organization_id, sealed, now)
    for chunk in _chunks([line for row in decided.created for line in _ledger(row)]):
        for line in chunk:
            tx.insert(
                tables.gift_card_entries, organization_id=organization_id, id=tokens.new_id(), created_at=now, **line
            )
        tx.flush()


def _ledger(card: CatalogueRow) -> Iterator[CatalogueRow]:
    """Yield the first lines of the ledger of a new card: it was issued, and a part of it was spent elsewhere."""
    initial, balance = card["initial_minor"], card["balance_minor"]
    yield {"gift_card_id": card["id"], "kind": "issue", "amount_minor": initial, "balance_minor": initial}
    if balance != initial:
        adjusted = {"kind": "adjust", "amount_minor": balance - initial, "balance_minor": balance}
        yield {"gift_card_id": card["id"], **adjusted}


def _chunks(rows: Sequence[CatalogueRow]) -> Iterator[Sequence[CatalogueRow]]:
    return (rows[i : i + CHUNK_ROWS] for i in range(0, len(rows), CHUNK_ROWS))


def _write_rows(tx: Tx, table: Table, organization_id: str, decided: Changes, now: int) -> Iterator[int]:
    """Write the changed and the new rows, and yield the numbers of entries that are done, changed or not.

    Each chunk is sent separately: neither the rows nor their statement grow with the file.
    """
    for chunk in _chunks(decided.updated):
        for row in chunk:
            store.change(tx, table, organization_id, row, now=now)
        tx.flush()
    yield len(decided.rows) - len(decided.created)
    for chunk in _chunks(decided.created):
        for row in chunk:
            store.insert(tx, table, organization_id, row, now=now)
        tx.flush()
        yield len(chunk)


def _stored_gift_card(keys: SecretKeys, organization_id: str, row: CatalogueRow, now: int) -> CatalogueRow:
    """Return the row with its code sealed and hashed, and with the instant of its deactivation."""
    columns = {key: value for key, value in row.items() if key not in ("code", "is_active")}
    if "is_active" in row:
        columns["deactivated_at"] = None if row["is_active"] else now
    if "code" in row:
        columns["code_hash"] = gift_codes.hash_code(keys, organization_id, row["code"])
        columns["code_sealed"] = gift_codes.seal_code(keys, organization_id, row["id"], row["code"])
        columns["code_last4"] = gift_codes.last4(row["code"])
    return columns


# Exporting -------------------------------------------------------------------------------------------------------


def export(tx: Tx, organization: Organization, installation: Installation) -> CatalogueRow:
    """Export the organization's catalogue, customers and gift cards as a document for import.

    Departures are listed one by one, without their schedules. The document has the codes of all gift cards, which are
    as confidential as the database.

    Raises:
        Conflict: `secret_key_missing`, a code was sealed with a secret key that is no longer live.
    """
    departures: dict[str, list[CatalogueRow]] = {}
    for row in store.DEPARTURES.every(tx, organization.id):
        departures.setdefault(row["experience_id"], []).append(row)
    keys = installation.secret_keys
    return {
        "timezone": organization.zone.name,
        "experiences": [
            present.experience(row, departures.get(row["id"], []), organization.zone)
            for row in store.EXPERIENCES.every(tx, organization.id)
        ],
        "customers": [present.customer(row) for row in store.CUSTOMERS.every(tx, organization.id)],
        "gift_cards": [
            present.gift_card(row, _code(keys, organization.id, row), organization.zone)
            for row in store.GIFT_CARDS.every(tx, organization.id)
        ],
    }


def _code(keys: SecretKeys, organization_id: str, row: CatalogueRow) -> str:
    code = gift_codes.open_code(keys, organization_id, row["id"], row["code_sealed"])
    if code is None:
        message = f"The code of the gift card {row['id']} was sealed with a secret key that is no longer live."
        raise Conflict("secret_key_missing", message)
    return code
