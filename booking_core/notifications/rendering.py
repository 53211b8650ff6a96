"""Renders the subject, text, HTML and calendar entry of a mail from templates.

Text from a guest is data for a template, never a template. It is escaped in HTML and kept on one line in plain text: it
cannot pass for text of this service. Mails to guests are in the guest's language, mails to staff in English,
but for those about a payment at Stripe, which are in the organization's language.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from markupsafe import Markup

from booking_core.base.context import Organization
from booking_core.base.languages import ENGLISH, N_, Language, choose, language
from booking_core.base.tokens import SecretKeys
from booking_core.models.money import formatted
from booking_core.notifications import calendar
from booking_core.notifications.formatting import brand, one_line, qr_png, shortened, zone_name
from booking_core.notifications.message import PICTURE_ID, MailContent
from booking_core.notifications.rules import GUEST_KINDS, STAFF_PAYMENT_KINDS
from booking_core.notifications.summary import (
    GiftCardDetails,
    MailBooking,
    gift_card_summary,
    language_of,
    summary,
    translated,
)
from booking_core.records.outbox import OutboxKind

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

_FOLDER = Path(__file__).with_name("templates")
_SUBJECT_LENGTH_MAX = 150
_LABEL_WIDTH = 12
_WIDTH = 76
_HIDE_NO_BREAK = {0xA0: 0xE000, 0x202F: 0xE001}
"""No-break spaces, as characters of private use while a text is broken into lines at its other blanks."""
_SHOW_NO_BREAK = {hidden: space for space, hidden in _HIDE_NO_BREAK.items()}


@dataclass(frozen=True, slots=True)
class Subject:
    """The organization, and the booking or the gift card that a mail is about."""

    organization: Organization
    booking: MailBooking | None
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
    """Return a paragraph of a plain text in lines that are never broken at a no-break space."""
    hidden = text.translate(_HIDE_NO_BREAK)
    filled = textwrap.fill(one_line(hidden), _WIDTH, break_long_words=False, break_on_hyphens=False)
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


def _content(
    kind: OutboxKind,
    organization: Organization,
    wording: Language,
    subject: str,
    context: Mapping[str, Any],
    *,
    entry: bytes | None = None,
    picture: bytes | None = None,
) -> MailContent:
    """Render both forms of a mail."""
    common = {
        "subject": subject,
        "organization": organization.name,
        "brand": brand(organization),
        "picture": f"cid:{PICTURE_ID}" if picture else None,
        "lang": wording.code,
        "field": partial(_field, wording),
    }
    translate = {"txt": wording.gettext, "html": wording.markup}
    rendered = {
        suffix: environment.get_template(f"{kind}.{suffix}").render(**common, **context, _=translate[suffix])
        for suffix, environment in _environments().items()
    }
    short_subject = shortened(one_line(subject), _SUBJECT_LENGTH_MAX)
    return MailContent(short_subject, rendered["txt"], rendered["html"], entry, picture, wording.code)


# Subjects and texts ---------------------------------------------------------------------------------------------------

_SUBJECTS = {
    OutboxKind.BOOKING_CONFIRMATION_MAIL: N_("Booking confirmed: %(title)s, %(day)s"),
    OutboxKind.BOOKING_CANCELLATION_MAIL: N_("Booking cancelled: %(title)s, %(day)s"),
    OutboxKind.BOOKING_CHANGE_MAIL: N_("Booking changed: %(title)s, %(day)s"),
    OutboxKind.BOOKING_RESCHEDULING_MAIL: N_("New time for your booking: %(title)s, %(day)s"),
    OutboxKind.STAFF_PAYMENT_REVIEW_MAIL: N_("Payment to be checked, booking %(number)s: %(title)s, %(day)s"),
    OutboxKind.STAFF_DISPUTE_OPENED_MAIL: N_("Payment disputed, booking %(number)s: %(title)s, %(day)s"),
    OutboxKind.STAFF_DISPUTE_LOST_MAIL: N_("Dispute lost, booking %(number)s: %(title)s, %(day)s"),
}
_SUBJECTS_FOR_STAFF = {
    OutboxKind.STAFF_BOOKING_MAIL: "New booking{number}: {title}, {day}",
    OutboxKind.STAFF_CANCELLATION_MAIL: "Cancelled{number}: {title}, {day}",
    OutboxKind.STAFF_RESCHEDULING_MAIL: "Moved{number}: {title}, {day}",
    OutboxKind.STAFF_REFUND_REFUSED_MAIL: "{task}{number}: {title}, {day}",
    OutboxKind.STAFF_REFUND_REVIEW_MAIL: "{task}{number}: {title}, {day}",
    OutboxKind.STAFF_KEY_EXPIRING_MAIL: "The API key {name} is about to expire",
    OutboxKind.STAFF_WEBHOOK_FAILING_MAIL: "A webhook endpoint is failing",
    OutboxKind.STAFF_WEBHOOK_DISABLED_MAIL: "A webhook endpoint was switched off",
}
_TITLES = {
    OutboxKind.STAFF_PAYMENT_REVIEW_MAIL: N_("A payment has to be checked"),
    OutboxKind.STAFF_DISPUTE_OPENED_MAIL: N_("A payment is disputed"),
    OutboxKind.STAFF_DISPUTE_LOST_MAIL: N_("A dispute is lost"),
}
_REVIEWS = {
    "amount_differs": N_("Stripe took another amount than the booking costs: the payment does not confirm it."),
    "currency_differs": N_("Stripe took another currency than the booking has: the payment does not confirm it."),
    "refund_differs": N_("Stripe reports a refund of this booking's payment that cannot be recorded."),
    "second_intent": N_("Stripe took another payment for this booking than its own."),
}
_REVIEW = N_("Stripe took a payment that this booking cannot take.")
_LOOK_UP = N_("Look the payment up at Stripe: refund it there, or decide otherwise, and close the review.")
_OPENED = N_("The bank of the cardholder asks for this payment back. The booking stays as it is.")
_ANSWER = N_("Answer the dispute at Stripe within the time that is shown there; without an answer it is lost.")
_LOST = N_("The bank of the cardholder has got this payment back. The booking stays as it is.")


def _sentences(kind: OutboxKind, reason: str) -> tuple[str, ...]:
    """Return the sentences of a mail about a payment."""
    if kind is OutboxKind.STAFF_PAYMENT_REVIEW_MAIL:
        return (_REVIEWS.get(reason, _REVIEW), _LOOK_UP)
    return (_OPENED, _ANSWER) if kind is OutboxKind.STAFF_DISPUTE_OPENED_MAIL else (_LOST,)


# Mails ----------------------------------------------------------------------------------------------------------------


def render(
    kind: OutboxKind, about: Subject, payload: str, *, organizer: str, link: str | None, secret_keys: SecretKeys
) -> MailContent:
    """Render the mail of an outbox row.

    Args:
        organizer: the address of the organizer in the calendar entry.
        link: the secret link of the booking or the gift card, for mails to guests.
        secret_keys: open the code of a gift card.
    """
    values = orjson.loads(payload)
    if about.gift_card is not None:
        return _of_gift_card(kind, about, about.gift_card, values, link, secret_keys)
    if about.booking is not None and kind in GUEST_KINDS:
        return _for_guest(kind, about, about.booking, values, link, organizer)
    if about.booking is not None and kind in STAFF_PAYMENT_KINDS:
        return _of_payment(kind, about, about.booking, values)
    return _for_staff(kind, about, values)


def _for_guest(
    kind: OutboxKind, about: Subject, row: MailBooking, payload: dict[str, Any], link: str | None, organizer: str
) -> MailContent:
    organization, wording = about.organization, language_of(row, about.organization)
    row = translated(row, organization)
    booking = summary(row, organization, wording, at=about.at)
    subject = wording.gettext(_SUBJECTS[kind], title=booking.title, day=booking.day)
    context = _facts(organization, payload, wording) | {"booking": booking, "manage_url": link}
    picture = qr_png(row.id) if link and booking.is_confirmed else None
    entry = calendar.entry(row, organization, organizer=organizer, at=about.at, wording=wording)
    return _content(kind, organization, wording, subject, context, entry=entry, picture=picture)


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
    context = {"card": card, "link": f"{link}?lang={wording.code}" if link and locale else link}
    picture = qr_png(card.code) if card.code else None
    return _content(kind, organization, wording, subject, context, picture=picture)


def _of_payment(kind: OutboxKind, about: Subject, row: MailBooking, payload: dict[str, Any]) -> MailContent:
    """Render a mail to staff about a payment at Stripe that needs a person.

    Args:
        payload: amount_minor, currency, reason, payment_intent.
    """
    organization = about.organization
    wording = language(choose(organization.language))
    booking = summary(row, organization, wording, at=about.at)
    amount_minor = payload["amount_minor"]
    notice = {
        "title": wording.gettext(_TITLES[kind]),
        "sentences": [wording.gettext(sentence) for sentence in _sentences(kind, payload["reason"])],
        "amount": None if amount_minor is None else wording.money(amount_minor, payload["currency"]),
        "reason": payload["reason"],
        "payment_intent": payload["payment_intent"],
        "can_resolve": kind is OutboxKind.STAFF_PAYMENT_REVIEW_MAIL,
    }
    names = {"number": booking.number or "-", "title": booking.title, "day": booking.day}
    context = {"booking": booking, "booking_id": row.id, "notice": notice}
    return _content(kind, organization, wording, wording.gettext(_SUBJECTS[kind], **names), context)


def _for_staff(kind: OutboxKind, about: Subject, payload: dict[str, Any]) -> MailContent:
    organization, facts = about.organization, _facts(about.organization, payload, ENGLISH)
    booking, names = None, facts
    if about.booking is not None:
        booking = summary(about.booking, organization, at=about.at)
        number = "" if booking.number is None else f" {booking.number}"
        names = {"task": booking.refund_task, "number": number, "title": booking.title, "day": booking.day}
    subject = _SUBJECTS_FOR_STAFF[kind].format_map(names)
    return _content(kind, organization, ENGLISH, subject, facts | {"booking": booking})


def _facts(organization: Organization, payload: Mapping[str, Any], wording: Language) -> dict[str, Any]:
    """Return the payload of an outbox row with formatted instants and amounts."""
    facts, zone = dict(payload), organization.zone
    for name in ("previous_starts_at", "expires_at", "since"):
        if name in facts:
            facts[name] = f"{wording.moment(zone, facts[name])} ({zone_name(zone, facts[name])})"
    if "amount_minor" in facts:
        facts["amount"] = formatted(facts["amount_minor"], facts["currency"])
    refund = facts.get("refund_minor")
    facts["refund"] = wording.money(refund, facts["currency"]) if refund else None
    return facts
