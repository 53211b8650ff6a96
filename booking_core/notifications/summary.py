"""Bookings and gift cards, as mails and the guest's page show them. No storage, no clock."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from booking_core.base import gift_codes
from booking_core.base.clock import MINUTE
from booking_core.base.context import Organization
from booking_core.base.languages import ENGLISH, N_, Language, choose, language
from booking_core.base.tokens import SecretKeys
from booking_core.catalogue import experiences
from booking_core.models.bookings import BookingStatus, CancelReason, PaymentMethod, PaymentSource, PaymentStatus
from booking_core.notifications.formatting import brand, lines, map_url, one_line, zone_name
from booking_core.payments.refund_states import RefundState


class MailBooking(NamedTuple):
    """A booking with its departure, experience, payment and refund, in the order of the columns."""

    organization_id: str
    id: str
    booking_number: int | None
    status: str
    source: str | None
    departure_id: str
    experience_id: str
    locale: str | None
    guest_name: str | None
    guest_email: str | None
    guest_phone: str | None
    guests: str
    add_ons: str
    currency: str
    subtotal_minor: int
    discount_minor: int
    gift_card_minor: int
    total_minor: int
    recorded_minor: int
    """Received by hand, as staff recorded it."""
    payment_method: str
    payment_source: str
    payment_status: str
    invoice_due: bool
    on_site_fee_minor: int
    note: str | None
    send_confirmation_email: bool
    notify_staff: bool
    manage_key_id: str | None
    manage_expires_at: int | None
    email_changes: int
    cancel_reason: str | None
    cancel_note: str | None
    created_at: int
    updated_at: int
    title: str
    address: str | None
    latitude: float | None
    longitude: float | None
    image_url: str | None
    meeting_point: str | None
    what_to_bring: str | None
    terms: str | None
    duration_minutes: int | None
    starts_at: int
    own_ends_at: int | None
    refund_id: str | None
    refund_minor: int | None
    refund_status: str | None
    refund_reason: str | None
    refund_first_sent_at: int | None
    refund_provider_id: str | None
    refund_settled_minor: int | None
    restored_minor: int | None
    translations: str | None = None
    """Texts of the experience in other languages, as they are stored."""

    @property
    def refund(self) -> RefundState | None:
        """Return the refund of a cancelled booking; None without one."""
        if self.refund_minor is None or self.refund_status is None or self.status != BookingStatus.CANCELLED:
            return None
        return RefundState(
            status=self.refund_status,
            amount_minor=self.refund_minor,
            currency=self.currency,
            reason=self.refund_reason,
            was_sent=self.refund_first_sent_at is not None,
            is_accepted=self.refund_provider_id is not None,
            settled_minor=self.refund_settled_minor,
        )

    @property
    def ends_at(self) -> int:
        """Return the departure's own end, or its start plus the experience's duration (decision B2)."""
        return self.own_ends_at if self.own_ends_at is not None else self.starts_at + self.duration * MINUTE

    @property
    def duration(self) -> int:
        return self.duration_minutes or 0


@dataclass(frozen=True, slots=True)
class PricedLine:
    """A line of guests or of an add-on."""

    label: str
    count: int
    unit_price: str
    sum: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The formatted fields of a booking for a template."""

    number: int | None
    status: str
    title: str
    address: str | None
    map_url: str | None
    image_url: str | None
    meeting_point: tuple[str, ...]
    """Lines of text; so are the terms."""
    what_to_bring: tuple[str, ...]
    terms: tuple[str, ...]
    policy: str | None
    """Sentences about the refund of a cancellation."""
    online: tuple[str, ...]
    """Sentences about the time until which the guest may cancel and move the booking on the page."""
    day: str
    when: str
    zone: str
    guest_name: str | None
    guest_email: str | None
    guest_phone: str | None
    lines: tuple[PricedLine, ...]
    """Guests, then add-ons."""
    subtotal: str
    discount: str | None
    gift_card: str | None
    total: str
    payment: str
    invoice_due: bool
    on_site_fee: str | None
    source: str | None
    note: tuple[str, ...]
    cancel_reason: str | None
    """A sentence, for staff."""
    cancel_reason_for_guest: str | None
    cancel_note: str | None
    refund: str | None
    """A sentence for the guest about the refund."""
    refund_for_staff: str | None
    """The same for staff, with the reason."""
    refund_waits: bool
    """A person has to act."""
    refund_task: str
    """The task of a person, for a subject."""
    refund_by_card: bool
    """The gateway took the payment, and may have returned a part of it."""
    refund_id: str | None
    restored: str | None
    """The amount that was returned to the gift card."""

    @property
    def is_cancelled(self) -> bool:
        return self.status == BookingStatus.CANCELLED

    @property
    def is_confirmed(self) -> bool:
        return self.status == BookingStatus.CONFIRMED

    @property
    def is_pending(self) -> bool:
        return self.status == BookingStatus.PENDING


_PAYMENTS = {
    (PaymentMethod.CARD, PaymentStatus.PAID): N_("Paid by card"),
    (PaymentMethod.CARD, PaymentStatus.PENDING): N_("The card payment has not arrived yet"),
    (PaymentMethod.CARD, PaymentStatus.UNPAID): N_("The card payment has not arrived yet"),
    (PaymentMethod.CARD, PaymentStatus.FAILED): N_("The card payment failed"),
    (PaymentMethod.CARD, PaymentStatus.PARTIALLY_REFUNDED): N_("Paid by card, and partly refunded"),
    (PaymentMethod.CARD, PaymentStatus.REFUNDED): N_("Paid by card, and refunded"),
    (PaymentMethod.PAY_ON_SITE, PaymentStatus.UNPAID): N_("To be paid on arrival"),
    (PaymentMethod.PAY_ON_SITE, PaymentStatus.PAID): N_("Paid"),
    (PaymentMethod.PAY_ON_SITE, PaymentStatus.PARTIALLY_REFUNDED): N_("Paid, and partly refunded"),
    (PaymentMethod.PAY_ON_SITE, PaymentStatus.REFUNDED): N_("Refunded"),
    (PaymentMethod.INVOICE, PaymentStatus.UNPAID): N_("By invoice"),
    (PaymentMethod.INVOICE, PaymentStatus.PAID): N_("Paid by invoice"),
    (PaymentMethod.INVOICE, PaymentStatus.PARTIALLY_REFUNDED): N_("Paid by invoice, and partly refunded"),
    (PaymentMethod.INVOICE, PaymentStatus.REFUNDED): N_("Refunded"),
    (PaymentMethod.EXTERNAL_PAID, PaymentStatus.PAID): N_("Paid"),
    (PaymentMethod.GIFT_CARD, PaymentStatus.PAID): N_("Paid with a gift card"),
}

_REASONS = {
    CancelReason.ADMIN: "Cancelled by staff.",
    CancelReason.CUSTOMER: "Cancelled by the guest.",
    CancelReason.MIN_PARTICIPANTS: "Cancelled because too few people had booked.",
    CancelReason.ABANDONED: "Cancelled because the payment did not arrive in time.",
    CancelReason.API: "Cancelled through the API.",
    CancelReason.AGENT: "Cancelled by an agent.",
}
_REASONS_FOR_GUESTS = {
    CancelReason.CUSTOMER: N_("It was cancelled as you asked."),
    CancelReason.MIN_PARTICIPANTS: N_("Too few people had booked, so it does not take place. We are sorry."),
    CancelReason.ABANDONED: N_("The payment did not arrive in time."),
}


def _reason(reasons: Mapping[CancelReason, str], reason: str | None) -> str | None:
    return {str(cancel_reason): text for cancel_reason, text in reasons.items()}.get(reason or "")


def _payment(row: MailBooking, wording: Language) -> str:
    """Return a phrase for the payment. A status or method without a phrase is shown as it is."""
    is_open = row.payment_status in (PaymentStatus.UNPAID, PaymentStatus.PENDING, PaymentStatus.FAILED)
    if is_open and row.recorded_minor:
        return _partly_paid(row, wording)
    if row.payment_method == PaymentMethod.FREE or (row.status == BookingStatus.CANCELLED and is_open):
        return wording.gettext("Nothing to pay")
    phrases = {(str(method), str(status)): text for (method, status), text in _PAYMENTS.items()}
    phrase = phrases.get((row.payment_method, row.payment_status))
    return wording.gettext(phrase) if phrase else f"{row.payment_method}, {row.payment_status}".replace("_", " ")


def _partly_paid(row: MailBooking, wording: Language) -> str:
    paid = wording.money(row.recorded_minor, row.currency)
    unpaid = wording.money(row.total_minor - row.recorded_minor, row.currency)
    if row.status == BookingStatus.CANCELLED:
        return wording.gettext("%(paid)s paid", paid=paid)
    if row.payment_method == PaymentMethod.PAY_ON_SITE:
        return wording.gettext("%(paid)s paid, %(left)s to be paid on arrival", paid=paid, left=unpaid)
    return wording.gettext("%(paid)s paid, %(left)s to be paid by invoice", paid=paid, left=unpaid)


def _lines(row: MailBooking, wording: Language) -> tuple[PricedLine, ...]:
    items = [(item["tier_label"], item) for item in orjson.loads(row.guests)]
    items += [(item["label"], item) for item in orjson.loads(row.add_ons)]
    return tuple(_line(wording, label, item["count"], **item["unit_price"]) for label, item in items)


def _line(wording: Language, label: str, count: int, amount_minor: int, currency: str) -> PricedLine:
    return PricedLine(
        label, count, wording.money(amount_minor, currency), wording.money(amount_minor * count, currency)
    )


_FREE, _FREE_BEFORE = (
    N_("You can cancel free of charge until %(moment)s."),
    N_("You could cancel free of charge until %(moment)s."),
)
_PART_AFTER, _PART_NOW = (
    N_("After that, %(percent)s of what you paid is returned."),
    N_("Now %(percent)s of what you paid is returned."),
)
_NOTHING_AFTER, _NOTHING_NOW = N_("After that, nothing is returned."), N_("Now nothing is returned.")


def _policy(row: MailBooking, organization: Organization, wording: Language, at: int) -> str | None:
    """Return the sentences about the refund of a cancellation (decision B12), where there is something to return."""
    can_be_paid = row.payment_source == PaymentSource.STRIPE or row.recorded_minor
    if row.status == BookingStatus.CANCELLED or not can_be_paid or not row.total_minor:
        return None
    until = organization.refunds_in_full_until(row.starts_at)
    is_over = at > until
    free = wording.gettext(_FREE_BEFORE if is_over else _FREE, moment=wording.moment(organization.zone, until))
    percent = organization.refund_late_percent
    if percent:
        rest = wording.gettext(_PART_NOW if is_over else _PART_AFTER, percent=wording.percent(percent))
    else:
        rest = wording.gettext(_NOTHING_NOW if is_over else _NOTHING_AFTER)
    return f"{free} {rest}"


_CANCEL, _CANCEL_BEFORE = (
    N_("You can cancel online until %(moment)s. After that, please ask us."),
    N_("You could cancel online until %(moment)s. To cancel now, please contact %(operator)s."),
)
_MOVE, _MOVE_BEFORE = (
    N_("You can move the booking online until %(moment)s."),
    N_("You could move the booking online until %(moment)s. To move it now, please contact %(operator)s."),
)


def _online(row: MailBooking, organization: Organization, wording: Language, at: int) -> Iterator[str]:
    if row.status == BookingStatus.CANCELLED:
        return
    cancels_until = organization.guest_cancels_until(row.starts_at)
    if cancels_until is None:
        yield wording.gettext("To cancel, please ask us.")
    for until, text, text_before in (
        (cancels_until, _CANCEL, _CANCEL_BEFORE),
        (organization.guest_moves_until(row.starts_at), _MOVE, _MOVE_BEFORE),
    ):
        if until is not None:
            names = {"moment": wording.moment(organization.zone, until), "operator": _contact(organization)}
            yield wording.gettext(text_before if at >= until else text, **names)


def _contact(organization: Organization) -> str:
    """Return an organization's name with the ways to reach it: `Fjord Tours (+47 55 12, hei@fjord.example)`."""
    identity = brand(organization)
    ways = ", ".join(filter(None, (identity.contact_phone, identity.contact_email)))
    return one_line(f"{organization.name} ({ways})" if ways else organization.name)


def language_of(row: MailBooking, organization: Organization) -> Language:
    """Return the language of a booking's guest: its own, else the organization's, else English."""
    return language(choose(row.locale, organization.language))


_SHOWN_AS_IT_IS = (
    *("status", "title", "image_url", "guest_name", "guest_email", "guest_phone"),
    *("source", "cancel_note", "refund_id"),
)


def summary(row: MailBooking, organization: Organization, wording: Language = ENGLISH, *, at: int) -> Summary:
    """Return the summary of a booking in a language, in the organization's zone.

    Args:
        at: the present, which decides whether a deadline is over.
    """
    zone, currency, refund = organization.zone, row.currency, row.refund

    def money(amount_minor: int | None) -> str | None:
        return wording.money(amount_minor, currency) if amount_minor else None

    reason = _reason(_REASONS_FOR_GUESTS, row.cancel_reason)
    return Summary(
        **{name: getattr(row, name) for name in _SHOWN_AS_IT_IS},
        number=row.booking_number,
        address=row.address or None,
        map_url=map_url(row.latitude, row.longitude, row.address),
        meeting_point=tuple(lines(row.meeting_point or "")),
        what_to_bring=tuple(orjson.loads(row.what_to_bring or "[]")),
        terms=tuple(lines(row.terms or "")),
        policy=_policy(row, organization, wording, at),
        online=tuple(_online(row, organization, wording, at)),
        day=wording.day(zone, row.starts_at),
        when=wording.span(zone, row.starts_at, row.ends_at),
        zone=zone_name(zone, row.starts_at),
        lines=_lines(row, wording),
        subtotal=wording.money(row.subtotal_minor, currency),
        discount=money(-row.discount_minor),
        gift_card=money(-row.gift_card_minor),
        total=wording.money(row.total_minor, currency),
        payment=_payment(row, wording),
        invoice_due=bool(row.invoice_due),
        on_site_fee=money(row.on_site_fee_minor),
        note=tuple(lines(row.note or "")),
        cancel_reason=_reason(_REASONS, row.cancel_reason),
        cancel_reason_for_guest=wording.gettext(reason) if reason else None,
        refund=refund.for_guest(one_line(organization.name), wording) if refund else None,
        refund_for_staff=refund.for_staff() if refund else None,
        refund_waits=refund is not None and refund.waits,
        refund_task=refund.task if refund else "Refund by hand needed",
        refund_by_card=refund is None or refund.was_by_card,
        restored=money(row.restored_minor),
    )


# Translations ---------------------------------------------------------------------------------------------------------

_TEXTS = ("title", "meeting_point", "terms")


def translated(row: MailBooking, organization: Organization, chosen: str | None = None) -> MailBooking:
    """Return the booking with the texts of its experience in the guest's language, as far as they are translated.

    A text without a translation is in the organization's language, or else as the experience has it.

    Args:
        chosen: the language that the guest chose on the page; it replaces the language of the booking.
    """
    if row.translations is None:
        return row
    texts = experiences.texts_for(row.translations, (chosen or row.locale, organization.language))
    values: dict[str, Any] = {name: texts[name] for name in _TEXTS if name in texts}
    if "what_to_bring" in texts:
        values["what_to_bring"] = orjson.dumps(texts["what_to_bring"]).decode()
    return row._replace(
        **values,
        guests=_renamed(row.guests, "tier_id", "tier_label", texts.get("price_tiers", {})),
        add_ons=_renamed(row.add_ons, "id", "label", texts.get("add_ons", {})),
    )


def _renamed(stored: str, key: str, label: str, names: dict[str, str]) -> str:
    """Return stored lines with the names of their tiers or add-ons."""
    if not names:
        return stored
    lines: list[dict[str, Any]] = orjson.loads(stored)
    return orjson.dumps([line | {label: names.get(line[key], line[label])} for line in lines]).decode()


# Gift cards -----------------------------------------------------------------------------------------------------------


class GiftCardDetails(NamedTuple):
    """A gift card, in the order of the columns."""

    organization_id: str
    id: str
    code_sealed: str
    currency: str
    initial_minor: int
    balance_minor: int
    valid_from: int | None
    expires_at: int | None
    deactivated_at: int | None
    purchaser_name: str | None
    recipient_name: str | None
    recipient_email: str | None


@dataclass(frozen=True, slots=True)
class GiftCardSummary:
    """The formatted fields of a gift card for a template."""

    code: str | None
    """None: the secret key that sealed it was dropped."""
    amount: str
    balance: str
    is_inactive: bool
    is_expired: bool
    valid_from: str | None
    """The day, while it is in the future."""
    expires: str | None
    purchaser_name: str | None
    recipient_name: str | None

    @property
    def is_usable(self) -> bool:
        return not (self.is_inactive or self.is_expired or self.valid_from)


def gift_card_summary(
    row: GiftCardDetails, organization: Organization, keys: SecretKeys, wording: Language, at: int
) -> GiftCardSummary:
    """Return the summary of a gift card with its code, in a language and in the organization's zone."""
    zone = organization.zone
    begins_later = row.valid_from is not None and row.valid_from > at
    return GiftCardSummary(
        code=gift_codes.open_code(keys, row.organization_id, row.id, row.code_sealed),
        amount=wording.money(row.initial_minor, row.currency),
        balance=wording.money(row.balance_minor, row.currency),
        is_inactive=row.deactivated_at is not None,
        is_expired=row.expires_at is not None and row.expires_at <= at,
        valid_from=wording.moment(zone, row.valid_from) if begins_later and row.valid_from is not None else None,
        expires=None if row.expires_at is None else wording.moment(zone, row.expires_at),
        purchaser_name=row.purchaser_name,
        recipient_name=row.recipient_name,
    )
