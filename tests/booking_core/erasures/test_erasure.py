"""An erasure removes everything that is stored about a guest, and nothing else."""

from typing import Any

HOLDING = {
    *("customers.name", "customers.email", "customers.email_key", "customers.phone"),
    *("bookings.guest_name", "bookings.guest_email", "bookings.guest_phone", "bookings.note", "bookings.cancel_note"),
    *("payment_records.note", "refunds.settled_note", "timeline.data", "events.body", "attempts.response_excerpt"),
    *("gift_cards.purchaser_name", "gift_cards.purchaser_email"),
    *("gift_cards.recipient_name", "gift_cards.recipient_email"),
    *("mails.recipient", "mails.message", "mails.last_error", "idempotency.body_sealed"),
}
"""Every column that has personal data. A column that is added has to be erased, too."""


def test_nothing_of_the_guest_is_left_in_any_column_of_any_table(filled: Any) -> None:
    assert filled.traces() == HOLDING
    filled.request()
    filled.erase()
    assert filled.traces() == set()
    filled.mails.write()
    assert filled.traces() == set(), "mails that were still to be sent are written anew"
    assert filled.world.examine() == []


def test_numbers_money_and_the_other_guest_stay_as_they_were(filled: Any) -> None:
    own = filled.customer_id()
    before = filled.dump()
    filled.request()
    filled.erase()
    after = filled.dump()
    for table in ("bookings", "payments", "payment_records", "refunds", "gift_card_entries", "departures", "holds"):
        assert [filled.unchanging(row) for row in after[table]] == [filled.unchanging(row) for row in before[table]]
    changed = {table: [row for row in rows if row not in after[table]] for table, rows in before.items()}
    eves = [str(row) for rows in changed.values() for row in rows if "other.example" in str(row).lower()]
    assert all("canary" in row.lower() for row in eves), "only a gift card that both have"
    counted = {table: len(rows) for table, rows in before.items()}
    assert {table: len(rows) for table, rows in after.items()} == counted | {
        "events": counted["events"] + 1,
        "timeline": counted["timeline"] + 1,
        "erasures": 1,
        "mails": len(after["mails"]),  # those to be sent are written anew
    }
    assert own in {str(row["id"]) for row in after["customers"]}
