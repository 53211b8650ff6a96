"""OCTO's supplier, products and availability, made from the organization, its experiences and its departures.

A product has one option, whose units are the price tiers. An availability is a departure, named by its local start.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, groupby, islice
from operator import itemgetter

from booking_core.base.clock import DAY, SECOND, parse_date
from booking_core.base.context import Caller
from booking_core.base.errors import Malformed, NotFound, Unprocessable
from booking_core.catalogue import departures, experiences
from booking_core.db.engine import Tx
from booking_core.db.paging import every_row
from booking_core.models.base import is_id
from booking_core.models.bookings import GuestLineInput
from booking_core.models.departures import DepartureStatus
from booking_core.models.json import JsonObject
from booking_core.models.limits import AMOUNT_MINOR_MAX, WINDOW_DAYS_MAX
from booking_core.models.money import minor_digits
from booking_core.models.pages import Order
from booking_server.octo.capabilities import CONTENT, PRICING, language_of
from booking_server.octo.errors import InvalidId
from booking_server.octo.models import AvailabilityBody, CalendarBody, UnitItem

OPTION_ID = "DEFAULT"
DELIVERY_METHODS = ["TICKET", "VOUCHER"]
_SECONDS = len("2026-12-24T10:00:00")
_OPEN = frozenset({"AVAILABLE", "LIMITED"})
_STATUSES = {
    DepartureStatus.SOLD_OUT: "SOLD_OUT",
    DepartureStatus.CLOSED: "CLOSED",
    DepartureStatus.CANCELLED: "CLOSED",
}
_BEST_FIRST = ("AVAILABLE", "LIMITED", "SOLD_OUT", "CLOSED")
_PRODUCTS_MAX = 2_000
"""The products of a list: the standard's list has no pages."""
_NEEDS_WINDOW = "The request needs localDateStart and localDateEnd, or availabilityIds."


_UTC_HOURS = {
    f"{hour:02}{offset:+03}:00": f"{hour - offset:02}"
    for hour in range(24)
    for offset in range(max(hour - 23, -12), min(hour, 14) + 1)
}
"""The hour in UTC of a local hour with its offset, where both are of the same day."""


def utc(timestamp: str) -> str:
    """Return a timestamp of the API in UTC, in whole seconds."""
    hour = _UTC_HOURS.get(timestamp[11:13] + timestamp[19:])
    if hour is not None:  # most of them, in a tenth of the time
        return f"{timestamp[:11]}{hour}{timestamp[13:19]}Z"
    return f"{datetime.fromisoformat(timestamp).astimezone(UTC).isoformat()[:_SECONDS]}Z"


def pricing(amount_minor: int, currency: str) -> JsonObject:
    """Present an amount as OCTO's pricing. There are neither net rates nor taxes apart."""
    return {
        "original": amount_minor,
        "retail": amount_minor,
        "net": None,
        "currency": currency,
        "currencyPrecision": minor_digits(currency),
        "includedTaxes": [],
    }


# Supplier ------------------------------------------------------------------------------------------------------------


def supplier(caller: Caller, capabilities: frozenset[str]) -> JsonObject:
    """Return the organization of the key as the supplier."""
    organization = caller.organization
    contact = {
        "website": organization.website,
        "email": organization.contact_email,
        "telephone": organization.contact_phone,
        "address": None,
    }
    endpoint = f"{caller.installation.public_url}/octo"
    presented = {"id": organization.id, "name": organization.name, "endpoint": endpoint, "contact": contact}
    return presented | ({"shortDescription": None, "media": []} if CONTENT in capabilities else {})


# Products ------------------------------------------------------------------------------------------------------------


def find_products(tx: Tx, caller: Caller, capabilities: frozenset[str]) -> list[JsonObject]:
    """Return the published experiences as products, the oldest first."""
    rows = every_row(lambda page: experiences.find(tx, caller, page, published=True), Order.ASC)
    return _products(tx, caller, list(islice(rows, _PRODUCTS_MAX)), capabilities)


def get_product(tx: Tx, caller: Caller, product_id: str, capabilities: frozenset[str]) -> JsonObject:
    """Return an experience as a product.

    Raises:
        InvalidId: no published experience has this id.
    """
    experience = _experience(tx, caller, product_id)
    return _products(tx, caller, [experience], capabilities)[0]


def _experience(tx: Tx, caller: Caller, product_id: str | None) -> JsonObject:
    try:
        if product_id is None or not is_id(product_id):
            raise NotFound
        experience = experiences.get(tx, caller, product_id.lower())
    except NotFound:
        raise InvalidId("productId", product_id) from None
    if not experience["is_published"]:
        raise InvalidId("productId", product_id)
    return experience


def _products(tx: Tx, caller: Caller, rows: Sequence[JsonObject], capabilities: frozenset[str]) -> list[JsonObject]:
    """Present experiences as products, with the start times of the coming month."""
    today = caller.organization.zone.wall(caller.at).date()
    only_id = rows[0]["id"] if len(rows) == 1 else None
    times = departures.find_start_times(tx, caller, today, experience_id=only_id)
    types = experiences.unit_types(tx, caller)
    products = []
    for row in rows:
        option = _option(caller, row, times.get(row["id"], ["00:00"]), types.get(row["id"], {}), capabilities)
        products.append(_product(caller, row, option, capabilities))
    return products


def _product(caller: Caller, experience: JsonObject, option: JsonObject, capabilities: frozenset[str]) -> JsonObject:
    organization = caller.organization
    product = {
        "id": experience["id"],
        "internalName": experience["title"],
        "reference": experience["slug"],
        "locale": language_of(caller),
        "timeZone": organization.timezone,
        "allowFreesale": False,
        "instantConfirmation": True,
        "instantDelivery": True,
        "availabilityRequired": True,
        "availabilityType": "START_TIME",
        "deliveryFormats": ["QRCODE"],
        "deliveryMethods": DELIVERY_METHODS,
        "redemptionMethod": "MANIFEST",
        "options": [option],
    }
    if PRICING in capabilities:
        price = experience["price_from"]
        currency = price["currency"] if price else organization.default_currency
        product |= {"defaultCurrency": currency, "availableCurrencies": [currency], "pricingPer": "UNIT"}
    return product | (_content(experience) if CONTENT in capabilities else {})


def _option(
    caller: Caller, experience: JsonObject, times: list[str], types: Mapping[str, str], capabilities: frozenset[str]
) -> JsonObject:
    hours = caller.organization.refund_full_until_hours
    units = [
        _unit(tier, types.get(tier["id"]) or ("OTHER" if position else "ADULT"), capabilities)
        for position, tier in enumerate(experience["price_tiers"])
    ]
    option = {
        "id": OPTION_ID,
        "default": True,
        "internalName": OPTION_ID,
        "reference": None,
        "availabilityLocalStartTimes": times,
        "cancellationCutoff": f"{hours} hours",
        "cancellationCutoffAmount": hours,
        "cancellationCutoffUnit": "hour",
        "requiredContactFields": ["firstName", "lastName"],
        "restrictions": {"minUnits": 1, "maxUnits": None},
        "units": units,
    }
    return option | (_content(experience) if CONTENT in capabilities else {})


def _unit(tier: JsonObject, kind: str, capabilities: frozenset[str]) -> JsonObject:
    unit = {
        "id": tier["id"],
        "internalName": tier["name"],
        "reference": None,
        "type": kind,
        "restrictions": {
            "minAge": 0,
            "maxAge": 100,
            "idRequired": False,
            "minQuantity": None,
            "maxQuantity": None,
            "paxCount": tier["seats_per_unit"],
            "accompaniedBy": [],
        },
        "requiredContactFields": [],
    }
    if PRICING in capabilities:
        unit["pricingFrom"] = [pricing(**tier["price"])]
    if CONTENT in capabilities:
        unit |= {"title": tier["name"], "shortDescription": "", "features": []}
    return unit


def _content(experience: JsonObject) -> JsonObject:
    """Return the texts, the picture and the meeting point of an experience, for its product and its option."""
    image, minutes = experience["image_url"], experience["duration_minutes"]
    cover = {"src": image, "type": "image/jpeg", "rel": "COVER", "title": None, "caption": None, "copyright": None}
    features = [("PREBOOKING_INFORMATION", text) for text in experience["what_to_bring"]]
    features += [("BOOKING_TERM", experience["terms"])] if experience["terms"] else []
    return {
        "title": experience["title"],
        "shortDescription": experience["excerpt"],
        "description": None,
        "features": [{"shortDescription": text, "type": kind} for kind, text in features],
        "faqs": [],
        "media": [cover] if image else [],
        "locations": _locations(experience),
        "categoryLabels": [],
        "durationMinutesFrom": minutes or 0,
        "durationMinutesTo": None,
        "commentary": [{"format": "IN_PERSON", "language": language} for language in experience["languages"]],
    }


_ADDRESS = ("addressLocality", "addressRegion", "postalCode", "addressCountry", "postOfficeBoxNumber")
_MAPS = ("google", "apple", "yelp", "facebook", "foursquare", "baidu", "amap")
_IDENTIFIERS = [*(f"{name}PlaceId" for name in _MAPS), "tripadvisorLocationId"]


def _locations(experience: JsonObject) -> list[JsonObject]:
    """Return the meeting point, if its position is known."""
    if experience["latitude"] is None or experience["longitude"] is None:
        return []
    place = {
        "latitude": experience["latitude"],
        "longitude": experience["longitude"],
        "postalAddress": {"streetAddress": experience["address"]} | dict.fromkeys(_ADDRESS),
        "identifiers": dict.fromkeys(_IDENTIFIERS),
        "sameAs": [],
    }
    location = {"title": experience["address"], "shortDescription": experience["meeting_point"], "types": ["START"]}
    return [location | {"minutesTo": None, "minutesAt": None, "place": place}]


# Availability --------------------------------------------------------------------------------------------------------


def find_availability(tx: Tx, caller: Caller, body: AvailabilityBody, capabilities: frozenset[str]) -> list[JsonObject]:
    """Return the departures of a product in a window of days, or with the ids.

    Raises:
        InvalidId: there is no such product, option or unit.
        Malformed: it has neither a window nor ids, or both.
        Unprocessable: the window is reversed, or wider than 92 days.
    """
    experience_id = _offered_experience_id(tx, caller, body)
    has_window = body.local_date_start is not None or body.local_date_end is not None
    if has_window == (body.availability_ids is not None):
        raise Malformed(_NEEDS_WINDOW)
    if has_window:
        rows = _in_window(tx, caller, experience_id, body)
    else:
        rows = _with_ids(tx, caller, experience_id, body.availability_ids or ())
    return _present(rows, body, capabilities)


def _offered_experience_id(tx: Tx, caller: Caller, body: CalendarBody) -> str:
    """Return the id of the experience whose availability is requested."""
    experience_id: str = _experience(tx, caller, body.product_id)["id"]
    _require_option(body.option_id)
    return experience_id


def _in_window(tx: Tx, caller: Caller, experience_id: str, body: CalendarBody) -> list[JsonObject]:
    if body.local_date_start is None or body.local_date_end is None:
        raise Malformed(_NEEDS_WINDOW)
    first, last = parse_date(body.local_date_start), parse_date(body.local_date_end)
    page = departures.find_available(tx, caller, date_from=first, date_to=last, experience_id=experience_id)
    rows: list[JsonObject] = page["data"]
    return rows


def _with_ids(tx: Tx, caller: Caller, experience_id: str, ids: Iterable[str]) -> list[JsonObject]:
    starts = {start for start in map(_start, ids) if start is not None}
    if not starts:
        return []
    first, last = min(starts), max(starts)
    if (last - first) // DAY > WINDOW_DAYS_MAX:
        raise Unprocessable(f"The availabilityIds are more than {WINDOW_DAYS_MAX} days apart.")
    end = last + SECOND - 1  # an id has no fraction of a second, and a start may have one
    rows = departures.find_between(tx, caller, first, end, experience_id=experience_id)
    return [departure for departure in rows if _start(departure["starts_at"]) in starts]


def _start(availability_id: str) -> int | None:
    """Return the instant that an id names, in whole seconds; None for another text, and far from any departure."""
    try:
        start = datetime.fromisoformat(availability_id)
    except ValueError:
        return None
    is_instant = start.tzinfo is not None and 1970 < start.year < 9999
    return int(start.timestamp()) * SECOND if is_instant else None


def get_departure(
    tx: Tx, caller: Caller, product_id: str | None, option_id: str | None, availability_id: str | None
) -> JsonObject:
    """Return the departure of an order.

    Raises:
        InvalidId: there is no such product, option or availability.
    """
    _require_option(option_id)
    if product_id is not None and is_id(product_id):
        for departure in _with_ids(tx, caller, product_id.lower(), [availability_id or ""]):
            return departure
    _experience(tx, caller, product_id)
    raise InvalidId("availabilityId", availability_id)


def _require_option(option_id: str | None) -> None:
    if option_id != OPTION_ID:
        raise InvalidId("optionId", option_id)


def guests_of(departure: JsonObject, items: Sequence[UnitItem] | None) -> list[GuestLineInput]:
    """Return the unit items of an order as guests of a departure's tiers.

    Raises:
        InvalidId: the departure has no such unit.
        Unprocessable: there are none.
    """
    if not items:
        raise Unprocessable("An order needs unitItems.")
    counts = Counter(item.unit_id for item in items)
    _require_units(departure, counts)
    return [GuestLineInput(tier_id=unit_id or "", count=count) for unit_id, count in counts.items()]


def _require_units(departure: JsonObject, unit_ids: Iterable[str | None]) -> None:
    offered = {tier["id"] for tier in departure["price_tiers"]}
    for unit_id in unit_ids:
        if unit_id not in offered:
            raise InvalidId("unitId", unit_id)


def _present(rows: Sequence[JsonObject], body: CalendarBody, capabilities: frozenset[str]) -> list[JsonObject]:
    """Present departures, available if they have the seats of the units that the request asks for.

    A list has thousands. Departures with the same tiers share their prices, which must not be changed.
    """
    one_of_tiers = {id(departure["price_tiers"]): departure for departure in rows}
    of_tiers = {key: _of_tiers(departure, body, capabilities) for key, departure in one_of_tiers.items()}
    return [_availability(departure, *of_tiers[id(departure["price_tiers"])]) for departure in rows]


def _of_tiers(departure: JsonObject, body: CalendarBody, capabilities: frozenset[str]) -> tuple[int, JsonObject]:
    """Return the seats of the units, and the fields of the capabilities, by the tiers of a departure."""
    counts = Counter[str]()
    for unit in body.units or ():
        counts[unit.id] += unit.quantity
    _require_units(departure, counts)
    tiers, fields = departure["price_tiers"], JsonObject()
    if PRICING in capabilities:
        fields["unitPricing"] = [{"unitId": tier["id"], **pricing(**tier["price"])} for tier in tiers]
        if counts and tiers:
            amount = sum(tier["price"]["amount_minor"] * counts[tier["id"]] for tier in tiers)
            if amount > AMOUNT_MINOR_MAX:
                raise Unprocessable("The total is larger than an amount can be.")
            fields["pricing"] = pricing(amount, tiers[0]["price"]["currency"])
    if CONTENT in capabilities:
        fields |= {"title": None, "shortDescription": ""}
    return sum(tier["seats_per_unit"] * counts[tier["id"]] for tier in tiers), fields


def _availability(departure: JsonObject, seats: int, fields: JsonObject) -> JsonObject:
    status, vacancies, start = _status(departure), departure["seats_available"], departure["starts_at"]
    return {
        "id": start,
        "localDateTimeStart": start,
        "localDateTimeEnd": departure["ends_at"],
        "utcCutoffAt": utc(departure["booking_closes_at"]),
        "allDay": False,
        "available": status in _OPEN and seats <= vacancies,
        "status": status,
        "vacancies": vacancies,
        "capacity": departure["seats_total"],
        "maxUnits": vacancies,
        "openingHours": [],
        **fields,
    }


def local_times(departure: JsonObject) -> JsonObject:
    """Return the local start and end of a departure."""
    return {"localDateTimeStart": departure["starts_at"], "localDateTimeEnd": departure["ends_at"]}


def _status(departure: JsonObject) -> str:
    if departure["status"] in _STATUSES:
        return _STATUSES[departure["status"]]
    return "LIMITED" if 2 * departure["seats_available"] < departure["seats_total"] else "AVAILABLE"


def find_calendar(tx: Tx, caller: Caller, body: CalendarBody, capabilities: frozenset[str]) -> list[JsonObject]:
    """Return the days of a window that have departures of a product.

    Raises:
        InvalidId, Malformed, Unprocessable: as `find_availability`.
    """
    rows = _in_window(tx, caller, _offered_experience_id(tx, caller, body), body)
    availabilities = _present(rows, body, capabilities)
    days = groupby(availabilities, key=lambda availability: str(availability["localDateTimeStart"])[:10])
    return [_day(day, list(of_day), capabilities) for day, of_day in days]


def _day(day: str, availabilities: Sequence[JsonObject], capabilities: frozenset[str]) -> JsonObject:
    calendar_day = {
        "localDate": day,
        "available": any(availability["available"] for availability in availabilities),
        "status": min((availability["status"] for availability in availabilities), key=_BEST_FIRST.index),
        "vacancies": max(availability["vacancies"] for availability in availabilities),
        "capacity": sum(availability["capacity"] for availability in availabilities),
        "openingHours": [],
    }
    if PRICING in capabilities:
        prices = chain.from_iterable(availability["unitPricing"] for availability in availabilities)
        calendar_day["unitPricingFrom"] = _lowest(prices)
    return calendar_day


def _lowest(prices: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the lowest price of each unit."""
    lowest: dict[str, JsonObject] = {}
    for price in prices:
        before = lowest.setdefault(price["unitId"], price)
        lowest[price["unitId"]] = min(before, price, key=itemgetter("retail"))
    return list(lowest.values())
