"""The Stripe gateway and its outcomes, over a real socket."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from stripe import StripeObject
from support.receivers.stripe_ledger import KEY, Fault, Ledger, stripe

from booking_core.payments import ClaimedRefund, RefundOutcome, RefundResult
from booking_server.adapters import stripe as adapter
from booking_server.adapters.stripe import StripeGateway

REFUND, BOOKING = "0190d3c1-0000-7000-8000-000000000001", "0190d3c1-0000-7000-8000-000000000002"
HOUR = 3_600_000_000
CLAIMED = ClaimedRefund("org", REFUND, BOOKING, "pi_1", 500, "NOK", None, 1, 0, 0, "lease")
LATE = replace(CLAIMED, at=25 * HOUR, attempt_count=3)
SOON_S = 1.0


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with stripe() as running:
        running.charge("pi_1", 500)
        yield running


@pytest.fixture
def gateway(ledger: Ledger) -> StripeGateway:
    return StripeGateway(KEY, ledger.base_url)


def result_of(answered: RefundResult) -> tuple[RefundOutcome, str | None, str | None]:
    return answered.outcome, answered.provider_refund_id, answered.reason


def test_a_refund_carries_its_key_its_amount_and_its_name(ledger: Ledger, gateway: StripeGateway) -> None:
    assert result_of(gateway.refund(CLAIMED)) == (RefundOutcome.REFUNDED, "re_000001", None)
    assert ledger.keys() == [f"refund-{REFUND}"]
    (refund,) = ledger.refunds("pi_1")
    assert (refund["amount"], refund["payment_intent"]) == (500, "pi_1")
    assert refund["metadata"] == {"refund_id": REFUND, "booking_id": BOOKING}


def test_the_same_refund_twice_is_made_once(ledger: Ledger, gateway: StripeGateway) -> None:
    assert gateway.refund(CLAIMED) == gateway.refund(CLAIMED)
    assert len(ledger.refunds("pi_1")) == 1


@pytest.mark.parametrize("fault", Fault)
def test_a_fault_is_unknown_and_the_next_try_refunds_once(ledger: Ledger, gateway: StripeGateway, fault: Fault) -> None:
    ledger.next_faults.append(fault)
    # Only who never answers is given up soon: a busy machine may take its time to say what went wrong.
    impatient = StripeGateway(KEY, ledger.base_url, read_s=SOON_S)
    first = (impatient if fault is Fault.TIMEOUT_AFTER else gateway).refund(CLAIMED)
    assert (first.outcome, first.provider_refund_id) == (RefundOutcome.UNKNOWN, None)
    assert first.reason
    # An error that is stored for the key is answered again, until the refund itself is looked up.
    again = replace(CLAIMED, attempt_count=6) if fault is Fault.ERROR_STORED else CLAIMED
    assert result_of(gateway.refund(again)) == (RefundOutcome.REFUNDED, "re_000001", None)
    assert len(ledger.refunds("pi_1")) == 1
    assert set(ledger.keys()) <= {f"refund-{REFUND}"}


@pytest.mark.parametrize(
    "body",
    [
        *(b"{}", b"[]", b"null", b"1", b'"ok"', b"\xff"),
        *(b'{"object": "refund"}', b'{"object": "refund", "id": "re_1"}'),
        *(b'{"error": "bad gateway"}', b'{"error": null}', b'{"error": {"code": [1]}}'),
    ],
)
@pytest.mark.parametrize("status", [200, 400, 502])
@pytest.mark.parametrize(
    "claimed",
    [CLAIMED, LATE, replace(CLAIMED, provider_refund_id="re_000001")],
    ids=["first", "late", "known to stripe"],
)
def test_a_response_that_is_not_stripes_is_unknown(
    ledger: Ledger, gateway: StripeGateway, claimed: ClaimedRefund, status: int, body: bytes
) -> None:
    ledger.in_between = (status, body)
    assert gateway.refund(claimed).outcome is RefundOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("currency", "minor", "stripe_amount"),
    [
        ("NOK", 89_000, 89_000),
        ("JPY", 89_000, 89_000),
        ("KWD", 89_000, 89_000),
        # Stripe counts these in other units than ISO 4217 does.
        ("ISK", 89_000, 8_900_000),
        ("UGX", 1, 100),
        ("MGA", 89_000, 890),
        ("MGA", 150, 2),
        ("MGA", 149, 1),
        ("ISK", 2**53 + 1, 100 * (2**53 + 1)),
    ],
)
def test_an_amount_is_sent_in_stripes_unit_of_its_currency(
    ledger: Ledger, gateway: StripeGateway, currency: str, minor: int, stripe_amount: int
) -> None:
    ledger.charge("pi_1", stripe_amount)
    assert gateway.refund(replace(CLAIMED, amount_minor=minor, currency=currency)).outcome is RefundOutcome.REFUNDED
    assert [refund["amount"] for refund in ledger.refunds("pi_1")] == [stripe_amount]


@pytest.mark.parametrize("claimed", [CLAIMED, LATE], ids=["first", "late"])
@pytest.mark.parametrize("place", ["_metadata", "_from_refund", "_amount"])
def test_an_error_of_our_own_is_raised(
    gateway: StripeGateway, monkeypatch: pytest.MonkeyPatch, claimed: ClaimedRefund, place: str
) -> None:
    """The job then reports the error, instead of an answer of Stripe that cannot be read."""

    def slip(*_: Any) -> Any:
        raise AttributeError("amont")

    monkeypatch.setattr(adapter, place, slip)
    with pytest.raises(AttributeError, match="amont"):
        gateway.refund(claimed)


def test_a_deprecation_of_the_library_does_not_make_a_refund_unknown(
    ledger: Ledger, gateway: StripeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_dict = StripeObject.to_dict

    def deprecated(*arguments: Any, **keywords: Any) -> Any:
        warnings.warn("to_dict is deprecated", DeprecationWarning, stacklevel=2)
        return to_dict(*arguments, **keywords)

    monkeypatch.setattr(StripeObject, "to_dict", deprecated)
    with pytest.warns(DeprecationWarning, match="to_dict is deprecated"):
        assert gateway.refund(CLAIMED).outcome is RefundOutcome.REFUNDED
    with warnings.catch_warnings(action="error"), pytest.raises(DeprecationWarning):
        gateway.refund(CLAIMED)


def test_each_call_is_made_once(ledger: Ledger, gateway: StripeGateway) -> None:
    ledger.rate, ledger.kinds = 1.0, [Fault.ERROR_BEFORE, Fault.CONFLICT, Fault.DROPPED_BEFORE]
    for number in range(1, 6):
        gateway.refund(CLAIMED)
        assert ledger.met.total() == number


def test_a_closed_port_is_unknown(ledger: Ledger) -> None:
    gateway = StripeGateway(KEY, "http://127.0.0.1:1")
    assert result_of(gateway.refund(CLAIMED)) == (RefundOutcome.UNKNOWN, None, "no_answer")


def test_an_invalid_stripe_key_is_no_refusal(ledger: Ledger) -> None:
    gateway = StripeGateway("sk_wrong", ledger.base_url)
    assert result_of(gateway.refund(CLAIMED)) == (RefundOutcome.UNKNOWN, None, "http_401")


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("charge_disputed", RefundOutcome.REFUSED),
        ("balance_insufficient", RefundOutcome.REFUSED),
        ("expired_or_canceled_card", RefundOutcome.REFUSED),
        ("lock_timeout", RefundOutcome.UNKNOWN),
        ("charge_already_refunded", RefundOutcome.UNCLEAR),
    ],
)
def test_an_error_code_is_the_reason(ledger: Ledger, gateway: StripeGateway, code: str, outcome: RefundOutcome) -> None:
    ledger.refusals["pi_1"] = code
    assert result_of(gateway.refund(CLAIMED)) == (outcome, None, code)


def test_an_unknown_payment_is_refused(ledger: Ledger, gateway: StripeGateway) -> None:
    refused = (RefundOutcome.REFUSED, None, "resource_missing")
    assert result_of(gateway.refund(replace(CLAIMED, payment_intent="pi_2"))) == refused


def test_a_reused_idempotency_key_is_left_to_staff(ledger: Ledger, gateway: StripeGateway) -> None:
    gateway.refund(CLAIMED)
    assert gateway.refund(replace(CLAIMED, amount_minor=400)).outcome is RefundOutcome.UNCLEAR


# Looking before sending ------------------------------------------------------------------------------------------


def test_a_refund_whose_key_has_expired_is_found_and_not_repeated(ledger: Ledger, gateway: StripeGateway) -> None:
    ledger.charge("pi_1", 1_000)
    ledger.next_faults.append(Fault.DROPPED_AFTER)
    assert gateway.refund(CLAIMED).outcome is RefundOutcome.UNKNOWN
    ledger.ahead_s = 25 * 3600
    assert result_of(gateway.refund(LATE)) == (RefundOutcome.REFUNDED, "re_000001", None)
    assert [what for what, _ in ledger.requests] == ["create", "find"]
    # And so it would have gone without looking: the ledger that forgets is not kinder than the real one.
    gateway.refund(CLAIMED)
    assert len(ledger.refunds("pi_1")) == 2


def test_a_refund_that_was_never_made_is_made_after_the_search(ledger: Ledger, gateway: StripeGateway) -> None:
    ledger.charge("pi_1", 1_000)
    ledger.refund_at_the_dashboard("pi_1", 100)
    assert gateway.refund(LATE).outcome is RefundOutcome.REFUNDED
    assert [what for what, _ in ledger.requests] == ["find", "create"]
    assert [refund["amount"] for refund in ledger.refunds("pi_1")] == [500, 100]


def test_a_refund_is_found_on_the_second_page(ledger: Ledger, gateway: StripeGateway) -> None:
    ledger.charge("pi_1", 1_000)
    gateway.refund(CLAIMED)
    for _ in range(150):
        ledger.refund_at_the_dashboard("pi_1", 1)
    assert result_of(gateway.refund(LATE)) == (RefundOutcome.REFUNDED, "re_000001", None)
    assert [what for what, _ in ledger.requests] == ["create", "find", "find"]


def test_a_failed_search_is_unknown(ledger: Ledger, gateway: StripeGateway) -> None:
    ledger.next_faults.append(Fault.ERROR_BEFORE)
    assert gateway.refund(LATE).outcome is RefundOutcome.UNKNOWN
    assert ledger.refunds("pi_1") == []


# Asked for again by staff ----------------------------------------------------------------------------------------

AGAIN = replace(CLAIMED, reopened_count=1)


def test_a_refusal_stored_for_an_old_key_does_not_apply_after_reopening(ledger: Ledger, gateway: StripeGateway) -> None:
    ledger.refusals["pi_1"] = "balance_insufficient"
    assert gateway.refund(CLAIMED).outcome is RefundOutcome.REFUSED
    del ledger.refusals["pi_1"]
    assert gateway.refund(CLAIMED).outcome is RefundOutcome.REFUSED
    assert gateway.refund(AGAIN).outcome is RefundOutcome.REFUNDED
    (refund,) = ledger.refunds("pi_1")
    assert refund["metadata"] == {"refund_id": REFUND, "booking_id": BOOKING, "reopened": "1"}


def test_a_refund_made_before_reopening_is_found_and_not_repeated(ledger: Ledger, gateway: StripeGateway) -> None:
    ledger.charge("pi_1", 1_000)
    gateway.refund(CLAIMED)
    assert result_of(gateway.refund(AGAIN)) == (RefundOutcome.REFUNDED, "re_000001", None)
    assert len(ledger.refunds("pi_1")) == 1


def test_a_failed_refund_is_made_once_more_after_reopening(ledger: Ledger, gateway: StripeGateway) -> None:
    ledger.charge("pi_1", 1_000)
    ledger.born = "pending"
    gateway.refund(CLAIMED)
    ledger.pay_out("failed")
    ledger.born = "succeeded"
    assert gateway.refund(LATE).outcome is RefundOutcome.REFUSED
    for _ in range(2):
        assert result_of(gateway.refund(AGAIN)) == (RefundOutcome.REFUNDED, "re_000002", None)
    assert ledger.charges["pi_1"].refunded == 500


def test_a_refund_that_fails_again_is_refused_again(ledger: Ledger, gateway: StripeGateway) -> None:
    ledger.charge("pi_1", 1_000)
    ledger.born = "pending"
    gateway.refund(AGAIN)
    ledger.pay_out("failed")
    assert gateway.refund(AGAIN).outcome is RefundOutcome.REFUSED
    assert len(ledger.refunds("pi_1")) == 1


RECORDED = replace(AGAIN, elsewhere_minor=500)
ELSEWHERE, PARTLY = "refunded_elsewhere", "partly_refunded_elsewhere"


@pytest.mark.parametrize(
    ("claimed", "charged", "at_the_dashboard", "expected", "refunded"),
    [
        (CLAIMED, 500, [500], (RefundOutcome.REFUNDED, "re_000001", ELSEWHERE), 500),
        (AGAIN, 1_000, [500], (RefundOutcome.REFUNDED, "re_000001", ELSEWHERE), 500),
        (AGAIN, 1_000, [100], (RefundOutcome.UNCLEAR, None, PARTLY), 100),
        (RECORDED, 1_000, [500], (RefundOutcome.REFUNDED, "re_000002", None), 1_000),
        (RECORDED, 1_500, [500, 100], (RefundOutcome.UNCLEAR, None, PARTLY), 600),
        (RECORDED, 1_500, [500, 100, 400], (RefundOutcome.REFUNDED, "re_000003", ELSEWHERE), 1_000),
    ],
    ids=[
        "nothing is left",
        "reopened",
        "part of it",
        "recorded already",
        "part is not recorded",
        "all is not recorded",
    ],
)
def test_only_the_unrecorded_part_of_a_dashboard_refund_counts(
    ledger: Ledger,
    gateway: StripeGateway,
    claimed: ClaimedRefund,
    charged: int,
    at_the_dashboard: list[int],
    expected: tuple[Any, ...],
    refunded: int,
) -> None:
    """Stripe would accept a second refund for a refund that staff had to settle and that was reopened."""
    ledger.charge("pi_1", charged)
    for amount in at_the_dashboard:
        ledger.refund_at_the_dashboard("pi_1", amount)
    assert result_of(gateway.refund(claimed)) == expected
    assert ledger.charges["pi_1"].refunded == refunded


# Already refunded ------------------------------------------------------------------------------------------------


def test_already_refunded_by_this_service_is_found(ledger: Ledger, gateway: StripeGateway) -> None:
    gateway.refund(CLAIMED)
    ledger.ahead_s = 25 * 3600
    assert result_of(gateway.refund(CLAIMED)) == (RefundOutcome.REFUNDED, "re_000001", None)
    assert [what for what, _ in ledger.requests] == ["create", "create", "find"]
    assert len(ledger.refunds("pi_1")) == 1


def test_refunds_from_the_dashboard_are_counted_in_stripes_unit(ledger: Ledger, gateway: StripeGateway) -> None:
    ledger.charge("pi_1", 500)
    ledger.refund_at_the_dashboard("pi_1", 500)  # 5 ISK
    krona = replace(CLAIMED, amount_minor=500, currency="ISK")
    assert result_of(gateway.refund(krona)) == (RefundOutcome.UNCLEAR, None, "charge_already_refunded")
    assert gateway.refund(replace(krona, id="another", amount_minor=5)).outcome is RefundOutcome.REFUNDED


def test_refunds_of_another_booking_are_not_counted(ledger: Ledger, gateway: StripeGateway) -> None:
    """Two bookings have the same payment, and the second has not been refunded."""
    gateway.refund(CLAIMED)
    other = replace(CLAIMED, id="0190d3c1-0000-7000-8000-000000000003", booking_id="another")
    assert result_of(gateway.refund(other)) == (RefundOutcome.UNCLEAR, None, "charge_already_refunded")


def test_a_failed_list_of_refunds_is_unknown(ledger: Ledger, gateway: StripeGateway) -> None:
    ledger.refund_at_the_dashboard("pi_1", 500)
    ledger.next_faults += [None, Fault.DROPPED_AFTER]
    assert gateway.refund(CLAIMED).outcome is RefundOutcome.UNKNOWN


# Accepted, and paid out later ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("succeeded", RefundOutcome.REFUNDED),
        ("pending", RefundOutcome.ACCEPTED),
        ("failed", RefundOutcome.REFUSED),
        ("canceled", RefundOutcome.REFUSED),
        ("requires_action", RefundOutcome.UNCLEAR),
    ],
)
def test_the_outcome_follows_the_status_of_the_refund(
    ledger: Ledger, gateway: StripeGateway, status: str, outcome: RefundOutcome
) -> None:
    ledger.born = status
    reason = None if status == "succeeded" else status
    assert result_of(gateway.refund(CLAIMED)) == (outcome, "re_000001", reason)


@pytest.mark.parametrize(
    ("became", "outcome"), [("succeeded", RefundOutcome.REFUNDED), ("failed", RefundOutcome.REFUSED)]
)
def test_an_accepted_refund_is_read_by_its_id(
    ledger: Ledger, gateway: StripeGateway, became: str, outcome: RefundOutcome
) -> None:
    ledger.born = "pending"
    accepted = replace(CLAIMED, provider_refund_id=gateway.refund(CLAIMED).provider_refund_id)
    assert gateway.refund(accepted).outcome is RefundOutcome.ACCEPTED
    ledger.pay_out(became)
    assert gateway.refund(accepted).outcome is outcome
    assert ledger.requests[1:] == [("read", "re_000001")] * 2


def test_an_accepted_refund_that_cannot_be_read_is_left_to_staff(ledger: Ledger, gateway: StripeGateway) -> None:
    lost: dict[str, Any] = {"provider_refund_id": "re_999999"}
    assert result_of(gateway.refund(replace(CLAIMED, **lost))) == (RefundOutcome.UNCLEAR, None, "resource_missing")
