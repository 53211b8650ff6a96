"""Customer records: list, get, create or reuse."""

from typing import TYPE_CHECKING, Literal
from uuid import UUID

from booking_core.models.customers import Customer
from booking_sdk._discreet import discreet_methods
from booking_sdk._parse import as_type
from booking_sdk.options import RequestOptions
from booking_sdk.paging import AsyncPage, AsyncPaginator, Page, Paginator, Walk
from booking_sdk.request import get, given, keyed, segment

if TYPE_CHECKING:
    from booking_sdk.client import AsyncBookingClient, BookingClient


@discreet_methods
class AsyncCustomers:
    """The people that the organization knows, each by one e-mail address."""

    def __init__(self, client: "AsyncBookingClient") -> None:
        self._client = client

    async def list(
        self,
        *,
        email: str | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPage[Customer]:
        """One page of customers, by creation.

        Args:
            email: the one with this address, whatever its case.
        """
        query = {"email": email, "limit": limit, "order": order, "starting_after": starting_after}
        return await self._client._page(get("customers", query=query, options=options), Customer, AsyncPage)

    def iterate(
        self,
        *,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncPaginator[Customer]:
        """Every customer, page after page."""
        query = {"order": order, "starting_after": starting_after}
        walk = Walk([get("customers", query=query, options=options)], page_size, max_items)
        return AsyncPaginator(self._client, walk, Customer)

    async def get(self, customer_id: str | UUID, *, options: RequestOptions | None = None) -> Customer:
        """One customer.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = get("customers", segment("customer_id", customer_id), options=options)
        return await self._client._run(spec, as_type(Customer))

    async def create(
        self,
        *,
        email: str,
        name: str,
        phone: str | None = None,
        email_subscription: bool = False,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Customer:
        """The customer with this address, created when there is none: `meta(customer).created` says which.

        One that exists is given as it is; nothing of it is overwritten.

        Args:
            email_subscription: that the customer agreed to marketing e-mail.
        """
        body = given(email=email, name=name, phone=phone, email_subscription=email_subscription or None)
        spec = keyed("customers", body=body, key=idempotency_key, options=options)
        return await self._client._run(spec, as_type(Customer))


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


@discreet_methods
class Customers:
    """The people that the organization knows, each by one e-mail address."""

    def __init__(self, client: "BookingClient") -> None:
        self._client = client

    def list(
        self,
        *,
        email: str | None = None,
        limit: int = 25,
        order: Literal["asc", "desc"] = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Page[Customer]:
        """One page of customers, by creation.

        Args:
            email: the one with this address, whatever its case.
        """
        query = {"email": email, "limit": limit, "order": order, "starting_after": starting_after}
        return self._client._page(get("customers", query=query, options=options), Customer, Page)

    def iterate(
        self,
        *,
        order: Literal["asc", "desc"] = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Paginator[Customer]:
        """Every customer, page after page."""
        query = {"order": order, "starting_after": starting_after}
        walk = Walk([get("customers", query=query, options=options)], page_size, max_items)
        return Paginator(self._client, walk, Customer)

    def get(self, customer_id: str | UUID, *, options: RequestOptions | None = None) -> Customer:
        """One customer.

        Raises:
            NotFoundError: there is none with this id.
        """
        spec = get("customers", segment("customer_id", customer_id), options=options)
        return self._client._run(spec, as_type(Customer))

    def create(
        self,
        *,
        email: str,
        name: str,
        phone: str | None = None,
        email_subscription: bool = False,
        idempotency_key: str | None = None,
        options: RequestOptions | None = None,
    ) -> Customer:
        """The customer with this address, created when there is none: `meta(customer).created` says which.

        One that exists is given as it is; nothing of it is overwritten.

        Args:
            email_subscription: that the customer agreed to marketing e-mail.
        """
        body = given(email=email, name=name, phone=phone, email_subscription=email_subscription or None)
        spec = keyed("customers", body=body, key=idempotency_key, options=options)
        return self._client._run(spec, as_type(Customer))
