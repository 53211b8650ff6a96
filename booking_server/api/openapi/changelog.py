"""The changelog of the API's versions, as the description and `docs/api-changelog.md` show it (API v1 section 9).

`python -m booking_server.api.openapi.changelog` prints the page.
"""

import sys
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple


class Change(NamedTuple):
    """An entry of the changelog."""

    date: str
    version: str
    """The version of the resource shapes from then on."""
    kind: Literal["initial", "breaking", "additive"]
    text: str


CHANGES = (
    Change(
        "2026-09-01",
        "2026-09-01",
        "initial",
        "Initial beta release: experiences, availability, bookings (read, create, cancel), customers, gift cards,"
        " events, webhooks, machine-readable description",
    ),
    Change(
        "2026-09-09",
        "2026-09-09",
        "breaking",
        "Breaking: webhook headers and user agent renamed to the current names (`Svc-*`, `Svc-Webhooks/1.0`)",
    ),
    Change(
        "2026-09-15",
        "2026-09-09",
        "additive",
        "Additive: `payment.source` on the booking (`stripe`, `on_site`, `external`)",
    ),
    Change(
        "2026-11-22",
        "2026-09-09",
        "additive",
        "Additive: `GET /departures` and `GET /departures/{id}`; `starts_at_local`, `timezone` and `price_tiers` on "
        "the departure; `add_ons` on the experience; `cancellation` on a booking that is read; filters "
        "`departure_id`, `customer_id`, `booking_number` and `email` on bookings; `GET "
        "/gift-cards/{id}/transactions`; `GET /departures/{id}/manifest`; `POST /bookings/{id}/check-in` and "
        "`/no-show`, `checked_in_at` and `no_show_at` on the booking; `ETag` and `If-None-Match` (304) on "
        "experiences, availability, departures and single resources",
    ),
    Change(
        "2026-11-22",
        "2026-09-09",
        "additive",
        "Additive: `locale` in the body of a new booking, the guest's language for mails and page; `meeting_point`, "
        "`what_to_bring` and `terms` on the experience",
    ),
    Change(
        "2026-11-22",
        "2026-09-09",
        "additive",
        "Additive: the events `booking.updated`, `booking.refunded`, `departure.updated`, `gift_card.restored` and "
        "`webhook.failing`; `changes` in `data` of `booking.updated`, `booking.rescheduled`, `booking.refunded`, "
        "`departure.updated` and `customer.updated`, the former values of the fields that differ; `POST "
        "/webhooks/{id}/redeliver`, and `redeliver` as the `trigger` of a delivery; `headers` of a webhook endpoint",
    ),
    Change(
        "2026-11-22",
        "2026-09-09",
        "additive",
        "Additive: `external_reference`, `external_reference_unique` and `metadata` in the body of a new booking, "
        "`external_reference` and `metadata` on the booking, the filter `external_reference` on bookings; "
        "`POST /holds`, `GET /holds/{id}`, `DELETE /holds/{id}`, and `hold_id` in the body of a new booking; "
        "`POST /bookings/quote`",
    ),
    Change(
        "2026-11-22",
        "2026-09-09",
        "additive",
        "Additive: `POST /bookings/{id}/reschedule`, and its preview at `POST /bookings/{id}/reschedule/preview`; "
        "`POST /bookings/{id}/party`, which changes the guests of a booking, and its preview at `POST "
        "/bookings/{id}/party/preview`",
    ),
    Change(
        "2026-11-22",
        "2026-09-09",
        "additive",
        "Additive: `POST /checkouts` and `GET /checkouts/{id}`, a pending booking with its payment at Stripe; the "
        "scope `checkouts:write`",
    ),
    Change(
        "2026-11-22",
        "2026-09-09",
        "additive",
        "Additive: sandboxes, whose keys begin with `svc_test_`; `GET /sandbox/clock`, `POST /sandbox/clock/advance` "
        "and `GET /sandbox/mails`",
    ),
)
"""Oldest first."""


def machine_readable() -> list[dict[str, Any]]:
    """Return the changelog as the description's `x-changelog`."""
    return [
        {"date": each.date, "version": each.version, "breaking": each.kind == "breaking", "change": each.text}
        for each in CHANGES
    ]


def table() -> str:
    """Return the changelog as a Markdown table."""
    return "\n".join(_rows())


def _rows() -> Iterator[str]:
    yield "| Date | Version | Change |"
    yield "|---|---|---|"
    for each in CHANGES:
        yield f"| {each.date} | {each.version} | {each.text} |"


PAGE = f"""\
# Changelog of the API

The version of the resource shapes is a date. It is `info.version` of `GET /api/v1/openapi.json` and `api_version` in
every event. Additions do not change it; a breaking change does, and is announced here at least 30 days before it
happens, while the API is in beta. `info.x-changelog` of the description holds the same for programs.

{table()}

What changed in the software is in [CHANGELOG.md](../CHANGELOG.md).
"""


if __name__ == "__main__":
    sys.stdout.write(PAGE)
