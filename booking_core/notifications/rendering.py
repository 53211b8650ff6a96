"""Renders the subject, text, HTML and calendar entry of a mail from templates.

Text from a guest is data for a template, never a template. It is escaped in HTML and kept on one line in plain text, so
that it cannot pass for text of this service. Mails to guests are in the guest's language, mails to staff in English,
but for those about a payment at Stripe, which are in the organization's language.
"""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from markupsafe import Markup

from booking_core.base.context import Organization
from booking_core.base.languages import ENGLISH, Language, choose, language
from booking_core.base.tokens import SecretKeys
from booking_core.notifications import calendar, qr_codes
from booking_core.notifications.branding import brand
from booking_core.notifications.formatting import money, one_line, shortened, zone_name
from booking_core.notifications.gift_card import GiftCardDetails, gift_card_summary
from booking_core.notifications.message import PICTURE_ID, MailContent
from booking_core.notifications.payment_notice import payment_notice
from booking_core.notifications.rules import GUEST_KINDS, STAFF_PAYMENT_KINDS
from booking_core.notifications.summary import BookingDetails, Summary, language_of, summary
from booking_core.notifications.translating import translated
from booking_core.records.outbox import OutboxKind

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

_FOLDER = Path(__file__).with_name("templates")
_SUBJECT_LENGTH_MAX = 150
_LABEL_WIDTH = 12
_WIDTH = 76
_HIDE_NO_BREAK = {0xA0: 0xE000, 0x202F: 0xE001}
"""No-break spaces, as characters of private use while a text is broken into lines at its other blanks."""
_SHOW_NO_BREAK = {hidden: shown for shown, hidden in _HIDE_NO_BREAK.items()}


@dataclass(frozen=True, slots=True)
class Subject:
    """The organization, and the booking or the gift card that a mail is about."""

    organization: Organization
    booking: BookingDetails | None
    gift_card: GiftCardDetails | None
    at: int

    @property
    def guest_name(self) -> str:
        """Return the name of the recipient of a mail to a guest."""
        if self.gift_card is not None:
            return self.gift_card.recipient_name or ""
        return (self.booking.guest_name if self.booking else None) or ""


# Templates -------------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    return one_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def isolated(value: object) -> Markup:
    """Return a name within an element that isolates its direction from the text around it."""
    return Markup("<bdi>{}</bdi>").format(one_line(str(value)))


def wrapped(text: str) -> Markup:
    """Return a paragraph of a plain text in lines, which keep together what a no-break space joins."""
    kept = text.translate(_HIDE_NO_BREAK)
    filled = textwrap.fill(one_line(kept), _WIDTH, break_long_words=False, break_on_hyphens=False)
    return Markup(filled.translate(_SHOW_NO_BREAK))  # noqa: S704 - plain text; the line breaks have to stay


def _field(wording: Language, name: str) -> Markup:
    """Return the label of a plain text with blanks up to the next column, and at least one."""
    return Markup(f"{wording.gettext('%(label)s:', label=name)} ".ljust(_LABEL_WIDTH))  # noqa: S704 - plain text


@lru_cache(maxsize=1)
def _environments() -> "Mapping[str, SandboxedEnvironment]":
    """Return the template environments for plain text and for HTML, by suffix."""
    from jinja2 import FileSystemLoader, StrictUndefined  # at the first mail: the service starts without it
    from jinja2.sandbox import SandboxedEnvironment

    environments = {
        suffix: SandboxedEnvironment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=suffix == "html",
            undefined=StrictUndefined,
            finalize=_plain,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            auto_reload=False,
        )
        for suffix in ("txt", "html")
    }
    for suffix, environment in environments.items():
        environment.filters |= {"bdi": isolated if suffix == "html" else one_line, "wrapped": wrapped}
    return environments


def _render(kind: OutboxKind, wording: Language, context: Mapping[str, Any]) -> dict[str, str]:
    """Render both forms of a mail, by suffix."""
    translate = {"txt": wording.gettext, "html": wording.markup}
    context = {**context, "lang": wording.code, "field": partial(_field, wording)}
    return {
        suffix: environment.get_template(f"{kind}.{suffix}").render(context, _=translate[suffix])
        for suffix, environment in _environments().items()
    }


# Subjects --------------------------------------------------------------------------------------------------------


def _subject_for_guest(kind: OutboxKind, about: Summary, wording: Language) -> str:
    _, names = wording.gettext, {"title": about.title, "day": about.day}
    if kind is OutboxKind.BOOKING_CONFIRMATION_MAIL:
        return _("Booking confirmed: %(title)s, %(day)s", **names)
    if kind is OutboxKind.BOOKING_CANCELLATION_MAIL:
        return _("Booking cancelled: %(title)s, %(day)s", **names)
    if kind is OutboxKind.BOOKING_CHANGE_MAIL:
        return _("Booking changed: %(title)s, %(day)s", **names)
    return _("New time for your booking: %(title)s, %(day)s", **names)


_BOOKED: Mapping[OutboxKind, Callable[[Summary], str]] = {
    OutboxKind.STAFF_BOOKING_MAIL: lambda it: f"New booking{_number(it)}: {it.title}, {it.day}",
    OutboxKind.STAFF_CANCELLATION_MAIL: lambda it: f"Cancelled{_number(it)}: {it.title}, {it.day}",
    OutboxKind.STAFF_RESCHEDULING_MAIL: lambda it: f"Moved{_number(it)}: {it.title}, {it.day}",
    OutboxKind.STAFF_REFUND_REFUSED_MAIL: lambda it: f"{it.refund_task}{_number(it)}: {it.title}, {it.day}",
    OutboxKind.STAFF_REFUND_REVIEW_MAIL: lambda it: f"{it.refund_task}{_number(it)}: {it.title}, {it.day}",
}
_OTHER: Mapping[OutboxKind, Callable[[Mapping[str, Any]], str]] = {
    OutboxKind.STAFF_KEY_EXPIRING_MAIL: lambda it: f"The API key {it['name']} is about to expire",
    OutboxKind.STAFF_WEBHOOK_FAILING_MAIL: lambda it: "A webhook endpoint is failing",
    OutboxKind.STAFF_WEBHOOK_DISABLED_MAIL: lambda it: "A webhook endpoint was switched off",
}


def _number(booking: Summary) -> str:
    return "" if booking.number is None else f" {booking.number}"


# Mails -----------------------------------------------------------------------------------------------------------


def render(
    kind: OutboxKind, about: Subject, payload: str, *, organizer: str, link: str | None, secret_keys: SecretKeys
) -> MailContent:
    """Render the mail of an outbox row.

    Args:
        organizer: the address of the organizer in the calendar entry.
        link: the secret link of the booking or the gift card, for mails to guests.
        secret_keys: open the code of a gift card.
    """
    given = orjson.loads(payload)
    if about.gift_card is not None:
        return _of_gift_card(kind, about, about.gift_card, given, link, secret_keys)
    if about.booking is not None and kind in GUEST_KINDS:
        return _for_guest(kind, about, about.booking, given, link, organizer)
    if about.booking is not None and kind in STAFF_PAYMENT_KINDS:
        return _of_payment(kind, about.organization, about.booking, given)
    return _for_staff(kind, about, given)


def _for_guest(
    kind: OutboxKind, about: Subject, row: BookingDetails, payload: dict[str, Any], link: str | None, organizer: str
) -> MailContent:
    organization, wording = about.organization, language_of(row, about.organization)
    row = translated(row, organization)
    booking = summary(row, organization, wording)
    subject = _subject_for_guest(kind, booking, wording)
    picture = qr_codes.png(row.id) if link and booking.is_confirmed else None
    context = _facts(organization, payload, wording) | {
        "subject": subject,
        "brand": brand(organization),
        "booking": booking,
        "manage_url": link,
        "picture": f"cid:{PICTURE_ID}" if picture else None,
    }
    rendered = _render(kind, wording, context)
    entry = calendar.entry(row, organization, organizer=organizer, at=about.at, wording=wording)
    return MailContent(_cut(subject), rendered["txt"], rendered["html"], entry, picture, wording.code)


def _of_gift_card(
    kind: OutboxKind,
    about: Subject,
    row: GiftCardDetails,
    payload: dict[str, Any],
    link: str | None,
    secret_keys: SecretKeys,
) -> MailContent:
    organization, locale = about.organization, payload.get("locale")
    wording = language(choose(locale, organization.language))
    card = gift_card_summary(row, organization, secret_keys, wording, about.at)
    subject = wording.gettext("A gift card from %(operator)s for you", operator=organization.name)
    picture = qr_codes.png(card.code) if card.code else None
    context = {
        "subject": subject,
        "brand": brand(organization),
        "card": card,
        "link": f"{link}?lang={wording.code}" if link and locale else link,
        "picture": f"cid:{PICTURE_ID}" if picture else None,
    }
    rendered = _render(kind, wording, context)
    return MailContent(_cut(subject), rendered["txt"], rendered["html"], None, picture, wording.code)


def _of_payment(
    kind: OutboxKind, organization: Organization, row: BookingDetails, payload: dict[str, Any]
) -> MailContent:
    wording = language(choose(organization.language))
    booking = summary(row, organization, wording)
    notice = payment_notice(kind, booking, payload, wording)
    context = {
        "subject": notice.subject,
        "organization": organization.name,
        "brand": brand(organization),
        "booking": booking,
        "booking_id": row.id,
        "notice": notice,
    }
    rendered = _render(kind, wording, context)
    return MailContent(_cut(notice.subject), rendered["txt"], rendered["html"], language=wording.code)


def _for_staff(kind: OutboxKind, about: Subject, payload: dict[str, Any]) -> MailContent:
    organization = about.organization
    facts = _facts(organization, payload, ENGLISH)
    booking = None if about.booking is None else summary(about.booking, organization)
    subject = _OTHER[kind](facts) if booking is None else _BOOKED[kind](booking)
    rendered = _render(
        kind, ENGLISH, facts | {"subject": subject, "organization": organization.name, "booking": booking}
    )
    return MailContent(_cut(subject), rendered["txt"], rendered["html"])


def _cut(subject: str) -> str:
    return shortened(one_line(subject), _SUBJECT_LENGTH_MAX)


def _facts(organization: Organization, payload: Mapping[str, Any], wording: Language) -> dict[str, Any]:
    """Return the payload of an outbox row with formatted instants and amounts."""
    facts, zone = dict(payload), organization.zone
    for name in ("previous_starts_at", "expires_at", "since"):
        if name in facts:
            facts[name] = f"{wording.moment(zone, facts[name])} ({zone_name(zone, facts[name])})"
    if "amount_minor" in facts:
        facts["amount"] = money(facts["amount_minor"], facts["currency"])
    refund = facts.get("refund_minor")
    facts["refund"] = wording.money(refund, facts["currency"]) if refund else None
    return facts
