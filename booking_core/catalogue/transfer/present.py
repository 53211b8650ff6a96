"""Present stored rows as in the catalogue file."""

import copy

from pydantic import BaseModel

from booking_core.base.clock import Zone
from booking_core.catalogue import experiences
from booking_core.catalogue.transfer.changes import CatalogueRow, effective_prices
from booking_core.catalogue.transfer.document import CustomerEntry, DepartureEntry, ExperienceEntry, GiftCardEntry
from booking_core.models.experiences import STANDARD_TIER_ID


def _price(amount_minor: int | None, currency: str) -> CatalogueRow | None:
    return None if amount_minor is None else {"amount_minor": amount_minor, "currency": currency}


def _iso(at: int | None, zone: Zone) -> str | None:
    """Format an instant in wall time of the zone, with microseconds where it has any."""
    return None if at is None else zone.wall(at).isoformat()


def _shown(model: type[BaseModel], row: CatalogueRow) -> CatalogueRow:
    """Return the columns that are keys of the file, in their order."""
    return {key: row[key] for key in model.model_fields if key in row}


def _translations(row: CatalogueRow) -> dict[str, CatalogueRow]:
    """Return the translations without the names of removed price tiers and add-ons, which an import would refuse."""
    tiers = [tier["id"] for tier in row["price_tiers"]] or [STANDARD_TIER_ID]
    translations: dict[str, CatalogueRow] = copy.deepcopy(row["translations"] or {})
    unknown = experiences.unknown_names(row["translations"], tiers, [add_on["id"] for add_on in row["add_ons"]])
    for tag, key, name in unknown:
        del translations[tag][key][name]
        if not translations[tag][key]:
            del translations[tag][key]
    return {tag: texts for tag, texts in translations.items() if texts}


def experience(row: CatalogueRow, departures: list[CatalogueRow], zone: Zone) -> CatalogueRow:
    fields = {
        "price_from": _price(row["price_from_minor"], row["currency"]),
        "translations": _translations(row),
        "departures": [
            _departure(departure | effective_prices(departure, row), row["currency"], zone) for departure in departures
        ],
    }
    return _shown(ExperienceEntry, row | fields)


def _departure(row: CatalogueRow, currency: str, zone: Zone) -> CatalogueRow:
    fields = {
        "starts_at": _iso(row["starts_at"], zone),
        "ends_at": _iso(row["ends_at"], zone),
        "price": _price(row["price_minor"], currency),
        "prices": row["prices"] and {tier: _price(amount, currency) for tier, amount in row["prices"].items()},
    }
    return _shown(DepartureEntry, row | fields)


def customer(row: CatalogueRow) -> CatalogueRow:
    return _shown(CustomerEntry, row)


def gift_card(row: CatalogueRow, code: str, zone: Zone) -> CatalogueRow:
    fields = {
        "code": code,
        "initial_amount": _price(row["initial_minor"], row["currency"]),
        "balance": _price(row["balance_minor"], row["currency"]),
        "is_active": row["deactivated_at"] is None,
        "valid_from": _iso(row["valid_from"], zone),
        "expires_at": _iso(row["expires_at"], zone),
        "purchaser": {"name": row["purchaser_name"], "email": row["purchaser_email"]},
        "recipient": {"name": row["recipient_name"], "email": row["recipient_email"]},
    }
    return _shown(GiftCardEntry, row | fields)
