"""The typed Python client of Booking Service, sync and async.

    from booking_sdk import BookingClient

    client = BookingClient("svc_…", base_url="https://booking.example.com")
    for departure in client.availability.list(date_from=date.today()):
        print(departure.starts_at, departure.seats_available)

The clients and the errors are imported at once. Models and pydantic are imported when a name or a call first needs
them, because their import takes most of the time. The README is the guide.
"""

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

from booking_core.models.limits import API_VERSION
from booking_sdk._sync._transport import HttpClientLike
from booking_sdk._sync.client import BookingClient
from booking_sdk._transport import AsyncHttpClientLike
from booking_sdk._version import __version__
from booking_sdk.client import AsyncBookingClient
from booking_sdk.errors import (
    APIConnectionError,
    APIError,
    ApiKeyExpiredError,
    ApiKeyInvalidError,
    ApiKeyMissingError,
    ApiKeyRevokedError,
    APIStatusError,
    APITimeoutError,
    AppNotEnabledError,
    AuthenticationError,
    BadRequestError,
    BookingError,
    ConfigurationError,
    ConflictError,
    EventsLost,
    IdempotencyInProgressError,
    IdempotencyKeyRequiredError,
    IdempotencyKeyReusedError,
    InsufficientCapacityError,
    InsufficientScopeError,
    Interruption,
    NotFoundError,
    PaginationError,
    PermissionDeniedError,
    PlanUpgradeRequiredError,
    RateLimitError,
    ResponseTooLargeError,
    ResponseValidationError,
    ServerError,
    UnprocessableEntityError,
    interruption,
)
from booking_sdk.idempotency import idempotency_key
from booking_sdk.options import Attempt, ClientOptions, Hooks, RequestOptions, RetryDecision, Sending, Timeout
from booking_sdk.request import UNSET, Unset
from booking_sdk.response import APIResponse, Headers, RateLimit, Response, ResponseMeta, meta

if TYPE_CHECKING:
    from booking_core.models.bookings import (
        AddOnInput,
        AddOnLine,
        BookedDeparture,
        BookedExperience,
        Booking,
        BookingChange,
        BookingQuote,
        BookingRefusal,
        BookingSource,
        BookingStatus,
        CancellationTerms,
        CancelReason,
        ChangeMoney,
        ChangeSettlement,
        Guest,
        GuestInput,
        GuestLine,
        GuestLineInput,
        Payment,
        PaymentMethod,
        PaymentMode,
        PaymentSource,
        PaymentStatus,
        RefundMode,
        Totals,
    )
    from booking_core.models.checkouts import Checkout, CheckoutPayment
    from booking_core.models.customers import Customer
    from booking_core.models.departures import Departure, DepartureStatus
    from booking_core.models.errors import ErrorCode, ErrorDetail
    from booking_core.models.events import EventType, ResourceType
    from booking_core.models.experiences import AddOn, Experience, ExperienceTexts, PriceTier
    from booking_core.models.gift_cards import (
        GiftCard,
        GiftCardContact,
        GiftCardStatus,
        GiftCardTransaction,
        GiftCardTransactionType,
    )
    from booking_core.models.holds import Hold, HoldStatus
    from booking_core.models.manifests import (
        BookingCounts,
        Manifest,
        ManifestDeparture,
        ManifestEntry,
        ManifestTotals,
    )
    from booking_core.models.money import Money
    from booking_core.models.organizations import ApiKey, Me, Organization
    from booking_core.models.sandbox import (
        SandboxCard,
        SandboxClock,
        SandboxDue,
        SandboxMail,
        SandboxPayment,
        SandboxPaymentStatus,
        SandboxStatus,
    )
    from booking_core.models.scopes import Scope
    from booking_core.models.webhooks import (
        AttemptError,
        AttemptTrigger,
        Delivery,
        DeliveryStatus,
        DeliveryTrigger,
        DisabledReason,
        EndpointStatus,
        FailureReason,
        Recovered,
        WebhookEndpoint,
        WebhookEndpointWithSecret,
    )
    from booking_sdk._sync.feed import Feed
    from booking_sdk._sync.pagination import EventPage, Page, Paginator
    from booking_sdk.event_parsing import parse_event_unverified, unwrap
    from booking_sdk.feed import AsyncFeed
    from booking_sdk.models import (
        AnyEvent,
        BookingCancelled,
        BookingConfirmed,
        BookingCreated,
        BookingData,
        BookingEvent,
        BookingRefundData,
        BookingRefunded,
        BookingRescheduled,
        BookingUpdated,
        BookingUpdateData,
        CancellationData,
        CustomerCreated,
        CustomerData,
        CustomerEvent,
        CustomerUpdated,
        CustomerUpdateData,
        DeliveryAttempt,
        DeliveryDeadData,
        DepartureData,
        DepartureEvent,
        DepartureUpdated,
        EndpointData,
        EndpointFailingData,
        Event,
        GiftCardData,
        GiftCardEvent,
        GiftCardIssued,
        GiftCardRedeemed,
        GiftCardRestored,
        Ping,
        PingData,
        PingObject,
        PreviousDeparture,
        RedemptionData,
        RescheduleData,
        RestorationData,
        UnknownEvent,
        WebhookAutoDisabled,
        WebhookDeliveryDead,
        WebhookEnabled,
        WebhookEvent,
        WebhookFailing,
        WebhookSecretRotated,
    )
    from booking_sdk.pagination import AsyncEventPage, AsyncPage, AsyncPaginator
    from booking_sdk.params import AddOnParam, GuestLineParam, GuestParam
    from webhook_verify import DuplicateEvent, PayloadError, WebhookVerificationError

__all__ = [
    "API_VERSION",
    "UNSET",
    "APIConnectionError",
    "APIError",
    "APIResponse",
    "APIStatusError",
    "APITimeoutError",
    "AddOn",
    "AddOnInput",
    "AddOnLine",
    "AddOnParam",
    "AnyEvent",
    "ApiKey",
    "ApiKeyExpiredError",
    "ApiKeyInvalidError",
    "ApiKeyMissingError",
    "ApiKeyRevokedError",
    "AppNotEnabledError",
    "AsyncBookingClient",
    "AsyncEventPage",
    "AsyncFeed",
    "AsyncHttpClientLike",
    "AsyncPage",
    "AsyncPaginator",
    "Attempt",
    "AttemptError",
    "AttemptTrigger",
    "AuthenticationError",
    "BadRequestError",
    "BookedDeparture",
    "BookedExperience",
    "Booking",
    "BookingCancelled",
    "BookingChange",
    "BookingClient",
    "BookingConfirmed",
    "BookingCounts",
    "BookingCreated",
    "BookingData",
    "BookingError",
    "BookingEvent",
    "BookingQuote",
    "BookingRefundData",
    "BookingRefunded",
    "BookingRefusal",
    "BookingRescheduled",
    "BookingSource",
    "BookingStatus",
    "BookingUpdateData",
    "BookingUpdated",
    "CancelReason",
    "CancellationData",
    "CancellationTerms",
    "ChangeMoney",
    "ChangeSettlement",
    "Checkout",
    "CheckoutPayment",
    "ClientOptions",
    "ConfigurationError",
    "ConflictError",
    "Customer",
    "CustomerCreated",
    "CustomerData",
    "CustomerEvent",
    "CustomerUpdateData",
    "CustomerUpdated",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryDeadData",
    "DeliveryStatus",
    "DeliveryTrigger",
    "Departure",
    "DepartureData",
    "DepartureEvent",
    "DepartureStatus",
    "DepartureUpdated",
    "DisabledReason",
    "DuplicateEvent",
    "EndpointData",
    "EndpointFailingData",
    "EndpointStatus",
    "ErrorCode",
    "ErrorDetail",
    "Event",
    "EventPage",
    "EventType",
    "EventsLost",
    "Experience",
    "ExperienceTexts",
    "FailureReason",
    "Feed",
    "GiftCard",
    "GiftCardContact",
    "GiftCardData",
    "GiftCardEvent",
    "GiftCardIssued",
    "GiftCardRedeemed",
    "GiftCardRestored",
    "GiftCardStatus",
    "GiftCardTransaction",
    "GiftCardTransactionType",
    "Guest",
    "GuestInput",
    "GuestLine",
    "GuestLineInput",
    "GuestLineParam",
    "GuestParam",
    "Headers",
    "Hold",
    "HoldStatus",
    "Hooks",
    "HttpClientLike",
    "IdempotencyInProgressError",
    "IdempotencyKeyRequiredError",
    "IdempotencyKeyReusedError",
    "InsufficientCapacityError",
    "InsufficientScopeError",
    "Interruption",
    "Manifest",
    "ManifestDeparture",
    "ManifestEntry",
    "ManifestTotals",
    "Me",
    "Money",
    "NotFoundError",
    "Organization",
    "Page",
    "PaginationError",
    "Paginator",
    "PayloadError",
    "Payment",
    "PaymentMethod",
    "PaymentMode",
    "PaymentSource",
    "PaymentStatus",
    "PermissionDeniedError",
    "Ping",
    "PingData",
    "PingObject",
    "PlanUpgradeRequiredError",
    "PreviousDeparture",
    "PriceTier",
    "RateLimit",
    "RateLimitError",
    "Recovered",
    "RedemptionData",
    "RefundMode",
    "RequestOptions",
    "RescheduleData",
    "ResourceType",
    "Response",
    "ResponseMeta",
    "ResponseTooLargeError",
    "ResponseValidationError",
    "RestorationData",
    "RetryDecision",
    "SandboxCard",
    "SandboxClock",
    "SandboxDue",
    "SandboxMail",
    "SandboxPayment",
    "SandboxPaymentStatus",
    "SandboxStatus",
    "Scope",
    "Sending",
    "ServerError",
    "Timeout",
    "Totals",
    "UnknownEvent",
    "UnprocessableEntityError",
    "Unset",
    "WebhookAutoDisabled",
    "WebhookDeliveryDead",
    "WebhookEnabled",
    "WebhookEndpoint",
    "WebhookEndpointWithSecret",
    "WebhookEvent",
    "WebhookFailing",
    "WebhookSecretRotated",
    "WebhookVerificationError",
    "__version__",
    "idempotency_key",
    "interruption",
    "meta",
    "parse_event_unverified",
    "unwrap",
]

_LAZY_MODULES = (
    "booking_sdk.models",
    "booking_sdk.pagination",
    "booking_sdk.feed",
    "booking_sdk._sync.pagination",
    "booking_sdk._sync.feed",
    "booking_sdk.event_parsing",
    "booking_sdk.params",
    *(
        f"booking_core.models.{module.name}"
        for module in pkgutil.iter_modules(import_module("booking_core.models").__path__)
    ),
    "webhook_verify",
)
"""The modules whose names are imported on first use, in the order of the search."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in map(import_module, _LAZY_MODULES):
            if hasattr(module, name):
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
