"""Checks that a catalogue was written for the organization: its currency and its time zone."""

import contextlib
import re
from collections.abc import Iterator
from datetime import timedelta

from booking_core.base.clock import Zone, zone
from booking_core.catalogue.transfer.document import Problem, pointer
from booking_core.catalogue.transfer.rules import objects, texts
from booking_core.models.money import CURRENCIES

_OFFSET = re.compile(r".{10}[Tt ].*([+\- ])(\d\d):?(\d\d)", re.ASCII)


def other_currencies(document: object, currency: str) -> Iterator[Problem]:
    """Yield a problem for each currency of the file that is not the organization's, at its first amount."""
    for file_currency, pointers in _by_value(_currencies(document, "")).items():
        if file_currency != currency and file_currency in CURRENCIES:
            times = "one such amount" if len(pointers) == 1 else f"{len(pointers)} such amounts"
            yield Problem(
                pointers[0],
                f"is {file_currency}, and the organization's currency is {currency} ({times});"
                " --other-currency imports it all the same",
            )


def other_time_zones(document: object, organization_zone: Zone) -> Iterator[Problem]:
    """Yield a problem when the file names another time zone than the organization's, or else when a timestamp has an
    offset that the organization's zone does not have at that instant. UTC offsets are accepted."""
    name = document.get("timezone") if isinstance(document, dict) else None
    if isinstance(name, str) and name != organization_zone.name:
        with contextlib.suppress(ValueError):  # no zone, which is reported already
            yield Problem(
                "/timezone",
                f"is {zone(name).name}, and the organization's time zone is {organization_zone.name};"
                " --other-timezone imports the file all the same",
            )
        return
    pointers = [pointer for pointer, text in _times(document) if not _fits(text, organization_zone)]
    if pointers:
        is_one = len(pointers) == 1
        where = "has" if is_one else f"{len(pointers)} timestamps have"
        yield Problem(
            pointers[0],
            f"{where} an offset that {organization_zone.name} does not have then"
            f"{'' if is_one else ', this is the first'};"
            " --other-timezone imports the file all the same",
        )


def _by_value(values: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the pointers of each value."""
    pointers: dict[str, list[str]] = {}
    for at, value in values:
        pointers.setdefault(value, []).append(at)
    return pointers


def _currencies(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield every currency of the file with its pointer."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _currencies(item, f"{path}/{i}")
    elif isinstance(value, dict):
        if isinstance(currency := value.get("currency"), str):
            yield f"{path}/currency", currency
        for key, item in value.items():
            if isinstance(item, dict | list):
                yield from _currencies(item, path + pointer(str(key)))


def _times(document: object) -> Iterator[tuple[str, str]]:
    """Yield every timestamp of the file with its pointer."""
    for path, experience in objects(document, "experiences"):
        for departure in objects(experience, "departures", path):
            for key in ("starts_at", "ends_at"):
                yield from texts([departure], key)
    for card in objects(document, "gift_cards"):
        for key in ("valid_from", "expires_at"):
            yield from texts([card], key)


def _fits(text: str, organization_zone: Zone) -> bool:
    """Return whether a timestamp can have been written in the zone: without an offset, in UTC, or with the offset that
    the zone has at that instant. An unreadable timestamp is reported elsewhere."""
    match = _OFFSET.fullmatch(text)
    if not match:
        return True
    sign, hours, minutes = match.groups()
    offset = timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
    try:
        return not offset or organization_zone.wall(organization_zone.parse(text)).utcoffset() == offset
    except (ValueError, OverflowError):
        return True
