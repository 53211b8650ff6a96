"""A secret key is rotated: its values are counted and resealed, open in their own rows alone, and none is lost."""

import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import Table
from support.world.sealed import CODE, KEY, PURPOSES, Sealed, bound_to
from support.world.world import DAY, World

from booking_core.base.errors import NotFound, Unavailable
from booking_core.base.settings import Settings
from booking_core.base.tokens import SecretKeys
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.upkeep import secret_keys
from booking_core.upkeep.secret_keys import Count, State, service

KINDS = [
    *("webhook_secret", "webhook_headers", "gift_card_code", "stored_answer", "mail", "stripe_account"),
    *("client_secret", "link_key"),
]


def never(_: float) -> None:
    """Pause for no time."""


@pytest.fixture
def sealed(alone: World) -> Sealed:
    """Everything sealed with key A."""
    filled = Sealed(alone)
    filled.use("A")
    return filled.fill()


@pytest.mark.exhaustive(but=("sqlite", "postgresql-gift_cards"))
@pytest.mark.parametrize("table", PURPOSES, ids=lambda table: table.name)
def test_a_sealed_value_cannot_be_emptied(sealed: Sealed, table: Table) -> None:
    row = sealed.world.rows(table)[0]
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.CheckViolation)):
        sealed.overwrite(table, row, **{PURPOSES[table][1]: ""})


def counted(sealed: Sealed) -> dict[tuple[str, str | None, State], int]:
    keys = sealed.world.installation.secret_keys
    counts = secret_keys.status(sealed.database, keys)
    return {(count.kind, count.key_id, count.state): count.values for count in counts}


def reseal(sealed: Sealed) -> dict[str, tuple[int, int]]:
    keys = sealed.world.installation.secret_keys
    return {work.kind: (work.resealed, work.lost) for work in secret_keys.reseal(sealed.database, keys, pause=never)}


def unopened(sealed: Sealed) -> list[str]:
    keys, at = sealed.world.installation.secret_keys, sealed.world.clock()
    return [values.plural for values in sealed.database.read(lambda tx: secret_keys.unopened(tx, keys, at))]


@pytest.mark.one_database
def test_the_key_in_use_has_sealed_everything(sealed: Sealed) -> None:
    (key_id,) = SecretKeys("A").ids
    counts = counted(sealed)
    assert {state for _, _, state in counts} == {State.CURRENT}
    assert {key for _, key, _ in counts} == {key_id}
    assert counts["gift_card_code", key_id, State.CURRENT] == 1
    assert counts["guest_link", key_id, State.CURRENT] == 1
    assert reseal(sealed) == dict.fromkeys(KINDS, (0, 0))


def test_resealing_leaves_no_use_of_the_old_key(sealed: Sealed) -> None:
    old, new = sealed.use("B", "A").ids[1], sealed.world.installation.secret_keys.first_id
    assert {key for _, key, _ in counted(sealed)} == {old}
    sealed.assert_all_open()
    kinds = reseal(sealed)
    assert all(lost == 0 for _, lost in kinds.values())
    assert kinds["gift_card_code"] == (1, 0)
    assert {(key, state) for _, key, state in counted(sealed)} == {(new, State.CURRENT)}
    assert reseal(sealed) == dict.fromkeys(KINDS, (0, 0))
    sealed.use("B")
    assert unopened(sealed) == []
    sealed.assert_all_open()
    assert {(key, state) for _, key, state in counted(sealed)} == {(new, State.CURRENT)}


@pytest.mark.one_database
def test_links_outlive_several_keys_and_are_shown_as_they_were(sealed: Sealed) -> None:
    for keys in (("B", "A"), ("B",), ("C", "B"), ("C",)):
        sealed.use(*keys)
        reseal(sealed)
        assert sealed.opened() == sealed.booking
    from booking_core import bookings

    booking = sealed.database.read(lambda tx: bookings.get(tx, sealed.world.caller(), sealed.booking))
    assert booking["manage_url"].endswith(sealed.token)
    sealed.world.clock.advance(3 * DAY)
    with pytest.raises(NotFound):
        sealed.opened()


@pytest.mark.one_database
def test_without_resealing_a_dropped_key_takes_its_links_with_it(sealed: Sealed) -> None:
    sealed.use("B")
    with pytest.raises(NotFound):
        sealed.opened()


@pytest.mark.one_database
def test_new_links_end_those_of_former_keys_at_once(sealed: Sealed) -> None:
    keys = sealed.use("B", "A")
    reseal(sealed)
    assert secret_keys.make_new_links(sealed.database, keys, pause=never) == 1
    with pytest.raises(NotFound):
        sealed.opened()
    assert sealed.world.row(tables.bookings, sealed.booking)["manage_key_id"] == keys.first_id
    sealed.use("B")
    with pytest.raises(NotFound):
        sealed.opened()
    assert unopened(sealed) == []


@pytest.mark.one_database
def test_values_that_no_key_opens_are_counted_and_not_changed(sealed: Sealed) -> None:
    before = sealed.world.row(tables.gift_cards, sealed.card)
    (lost,) = SecretKeys("A").ids
    sealed.use("C")
    assert counted(sealed)["gift_card_code", lost, State.LOST] == 1
    assert counted(sealed)["guest_link", lost, State.LOST] == 1
    assert reseal(sealed)["gift_card_code"] == (0, 1)
    assert sealed.world.row(tables.gift_cards, sealed.card) == before
    sealed.use("C", "A")
    reseal(sealed)
    sealed.assert_all_open()


@pytest.mark.one_database
def test_a_text_that_names_no_key_is_lost(sealed: Sealed) -> None:
    sealed.overwrite(tables.gift_cards, sealed.world.row(tables.gift_cards, sealed.card), code_sealed="AAAA")
    assert counted(sealed)["gift_card_code", None, State.LOST] == 1
    assert reseal(sealed)["gift_card_code"] == (0, 1)


@pytest.mark.one_database
def test_another_key_is_noticed_by_one_value_of_each_kind(sealed: Sealed) -> None:
    assert unopened(sealed) == []
    sealed.use("C")
    values = ["webhook secrets", "webhook headers", "gift card codes", "stored answers", "mails", "Stripe accounts"]
    assert unopened(sealed) == [*values, "client secrets of payments", "guests' links"]
    sealed.use("B", "A")
    reseal(sealed)
    sealed.use("C")
    assert "link keys" in unopened(sealed)


@pytest.mark.exhaustive(but=("sqlite", "postgresql-oldest-None"))
@pytest.mark.parametrize("text", ["AAAA", "v2.00000000.AAAA", None])
@pytest.mark.parametrize("place", [0, -1], ids=["oldest", "newest"])
def test_a_damaged_value_at_an_edge_is_no_wrong_key(
    sealed: Sealed, fresh_database_url: str, place: int, text: str | None
) -> None:
    sealed.book("another-key")
    sealed.world.clock.advance(DAY)
    sealed.book("a-later-key")
    row = sorted(sealed.world.rows(tables.idempotency), key=lambda row: row["created_at"])[place]
    sealed.overwrite(tables.idempotency, row, body_sealed=text or row["body_sealed"][:60])
    assert unopened(sealed) == ["stored answers"]
    problem = secret_keys.find_problem(Settings(database_url=fresh_database_url, secret_key="A"), sealed.database)
    assert problem is not None
    assert (problem.is_refused, problem.is_damage) == (False, True)
    assert "booking doctor" in problem.hint


@pytest.mark.one_database
def test_a_single_unopened_value_of_a_live_key_is_damaged(sealed: Sealed) -> None:
    row = sealed.world.row(tables.gift_cards, sealed.card)
    sealed.overwrite(tables.gift_cards, row, code_sealed=row["code_sealed"][:-8])
    (values,) = sealed.database.read(
        lambda tx: secret_keys.unopened(tx, sealed.world.installation.secret_keys, sealed.world.clock())
    )
    assert (values.plural, values.is_damaged) == ("gift card codes", True)


@pytest.mark.one_database
def test_a_key_dropped_too_early_is_missing_although_newer_values_open(sealed: Sealed) -> None:
    sealed.book("another-key")
    sealed.use("B", "A")
    sealed.world.clock.advance(DAY)
    sealed.book("a-key-of-b")
    keys = sealed.use("B")
    unopened_values = sealed.database.read(lambda tx: secret_keys.unopened(tx, keys, sealed.world.clock()))
    assert ("stored answers", *SecretKeys("A").ids) in [(values.plural, values.key_id) for values in unopened_values]


@pytest.mark.one_database
def test_an_empty_database_holds_nothing_to_be_opened(fresh_database: Database) -> None:
    assert not fresh_database.read(lambda tx: secret_keys.holds_anything(tx, 0))
    assert secret_keys.status(fresh_database, SecretKeys("A")) == []


def test_a_value_that_is_changed_meanwhile_is_not_overwritten(sealed: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mail is sent, and so emptied, between the moment it is read and the moment it would be written."""
    sealed.use("B", "A")
    real = service._sealed_anew

    def sent_meanwhile(keys: SecretKeys, kind: service.SealedKind, row: dict[str, Any]) -> dict[str, str] | None:
        if kind.name == "mail":
            sealed.overwrite(tables.mails, row, message="", status="sent")
        return real(keys, kind, row)

    monkeypatch.setattr(service, "_sealed_anew", sent_meanwhile)
    assert reseal(sealed)["mail"] == (0, 0)
    assert {row["message"] for row in sealed.world.rows(tables.mails)} == {""}


def test_one_that_was_interrupted_goes_on_where_it_stopped(sealed: Sealed) -> None:
    for number in range(120):
        sealed.book(f"{KEY}-{number}")
    keys = sealed.use("B", "A")
    progress: list[tuple[int, int]] = []

    def interrupted(count: int, total: int) -> None:
        progress.append((count, total))
        if count > 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        secret_keys.reseal(sealed.database, keys, progress=interrupted, pause=never)
    remaining = secret_keys.count_to_reseal(sealed.database, keys)
    assert 0 < remaining < progress[0][1]
    assert sum(resealed for resealed, _ in reseal(sealed).values()) == remaining
    sealed.use("B")
    sealed.assert_all_open()


def test_each_transaction_is_short_and_others_come_between(sealed: Sealed) -> None:
    for number in range(service.WRITTEN_AT_ONCE * 2 + 1):
        sealed.book(f"{KEY}-{number}")
    keys = sealed.use("B", "A")
    pauses: list[float] = []
    secret_keys.reseal(sealed.database, keys, pause=pauses.append)
    assert len(pauses) >= 6
    assert all(pause > 0 for pause in pauses)


def test_a_database_that_is_busy_for_a_while_is_waited_for(sealed: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed.use("B", "A")
    real, refusals = service.store.replace, [Unavailable(), Unavailable()]

    def busy(*args: object, **options: object) -> int:
        if refusals:
            raise refusals.pop()
        return real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(service.store, "replace", busy)
    assert reseal(sealed)["webhook_secret"] == (1, 0)


@pytest.mark.one_database
def test_a_card_is_found_by_its_code_without_the_old_key(sealed: Sealed) -> None:
    from booking_core.base import gift_codes

    sealed.use("B", "A")
    reseal(sealed)
    keys = sealed.use("B")
    hashes = gift_codes.code_hashes(keys, sealed.world.org, CODE)
    assert sealed.world.row(tables.gift_cards, sealed.card)["code_hash"] == hashes[0]


def test_a_start_looks_up_few_values_by_indexes(sealed: Sealed) -> None:
    queries: list[str] = []
    sealed.database.observer = queries.append
    keys = sealed.world.installation.secret_keys
    sealed.database.read(lambda tx: secret_keys.unopened(tx, keys, sealed.world.clock()))
    assert len(queries) == 2 * len(KINDS) + 1


@pytest.mark.one_database
def test_nothing_is_said_of_keys_but_their_ids(sealed: Sealed) -> None:
    keys = sealed.use("B-secret", "A")
    counts = secret_keys.status(sealed.database, keys)
    assert all(isinstance(count, Count) for count in counts)
    assert "B-secret" not in repr(counts)


# Binding -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bound(world: World) -> Sealed:
    return Sealed(world).fill()


@pytest.fixture
def bound_alone(alone: World) -> Sealed:
    return Sealed(alone).fill()


@pytest.mark.parametrize("table", PURPOSES, ids=lambda table: table.name)
def test_a_value_opens_in_its_row_and_in_no_other(bound: Sealed, new_world: Callable[..., World], table: Any) -> None:
    keys, (purpose, column) = bound.world.installation.secret_keys, PURPOSES[table]
    row = bound.world.rows(table)[0]
    place = bound_to(table, row)
    assert keys.open(purpose, row[column], *place)
    others = [(new_world().org, *place[1:])]
    others += [(*place[:at], bound.departure, *place[at + 1 :]) for at in range(1, len(place))]
    for other in others:
        with pytest.raises(ValueError, match="another row"):
            keys.open(purpose, row[column], *other)
    for foreign, _ in PURPOSES.values():
        if foreign != purpose:
            with pytest.raises(ValueError, match="another row"):
                keys.open(foreign, row[column], *place)


def test_a_secret_that_is_moved_to_another_endpoint_signs_nothing(bound_alone: Sealed) -> None:
    from support.world.hooks import Hooks

    hooks = Hooks(bound_alone.world)
    other = hooks.endpoint()
    rows = {row["endpoint_id"]: row for row in bound_alone.world.rows(tables.webhook_secrets)}
    moved = rows[bound_alone.endpoint]["secret_sealed"]
    bound_alone.overwrite(tables.webhook_secrets, rows[other], secret_sealed=moved)
    hooks.publish()
    assert {claimed.endpoint_id for claimed in hooks.claim(free=10)} == {bound_alone.endpoint}


def test_a_response_moved_to_another_key_is_never_replayed(bound: Sealed) -> None:
    from support.world.creating import create, created

    from booking_core.base.errors import IdempotencyKeyReused

    bound.book("another-key-of-a-guest")
    rows = {row["key"]: row for row in bound.world.rows(tables.idempotency)}
    first, second = rows["a-key-of-a-guest"], rows["another-key-of-a-guest"]
    bound.overwrite(tables.idempotency, second, body_sealed=first["body_sealed"])
    (answer,) = created(bound.database, [create(bound.world, bound.departure, "another-key-of-a-guest")])
    assert isinstance(answer, IdempotencyKeyReused)
