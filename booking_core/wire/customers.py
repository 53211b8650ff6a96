"""A customer record, and the request that creates or reuses one."""

from pydantic import AwareDatetime

from booking_core.wire.base import Email, Id, Name, Request, Resource, ShortText


class Customer(Resource):
    """A person known to the organization by one e-mail address."""

    id: Id
    name: str
    email: str
    """Unique within the organization, whatever its case."""
    phone: str | None
    tags: list[str]
    """Merchant-defined."""
    email_subscription: bool
    """True when opted in to marketing e-mail."""
    created_at: AwareDatetime


class CustomerCreate(Request):
    """Body of `POST /api/v1/customers`."""

    email: Email
    """The identity of the customer."""
    name: Name
    phone: ShortText | None = None
    email_subscription: bool | None = None
    """Default false: consent is only ever recorded, never assumed."""
