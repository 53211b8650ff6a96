"""A customer record, and the request that creates or reuses one."""

from pydantic import AwareDatetime, Field

from booking_core.models.base import Email, Id, Name, Request, Resource, ShortText


class Customer(Resource):
    """A person known to the organization by one e-mail address."""

    id: Id
    name: str = Field(repr=False)
    email: str = Field(repr=False)
    """Unique within the organization; case does not matter."""
    phone: str | None = Field(repr=False)
    tags: list[str]
    """Merchant-defined."""
    email_subscription: bool
    """True when opted in to marketing e-mail."""
    created_at: AwareDatetime


class CustomerCreate(Request):
    """Body of `POST /api/v1/customers`."""

    email: Email = Field(repr=False)
    """The identity of the customer."""
    name: Name = Field(repr=False)
    phone: ShortText | None = Field(default=None, repr=False)
    email_subscription: bool | None = None
    """Default false: consent is only ever recorded, never assumed."""
