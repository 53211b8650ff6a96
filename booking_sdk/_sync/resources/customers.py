# Generated from booking_sdk/resources/customers.py by `make sync-client`. Do not edit.
"""Customer records: list, get and create."""

from uuid import UUID

from booking_core.models.customers import Customer
from booking_sdk._page_iterator import PageIterator
from booking_sdk._parse import parser_for
from booking_sdk._sync._base_client import APIResource
from booking_sdk._sync.pagination import Page, Paginator, fetch_page
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.params import SortOrder
from booking_sdk.request import get, path_segment, post_with_key, without_none


@scrub_tracebacks
class Customers(APIResource):
    """Customer records, unique by e-mail address. Reading needs `customers:read`, creating `customers:write`."""

    def list(
        self,
        *,
        email: str | None = None,
        limit: int = 25,
        order: SortOrder = "desc",
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Page[Customer]:
        """List one page of customers, by creation time.

        Args:
            email: Only the customer with this address, ignoring case.
            limit: The page size, from 1 to 100.
            order: `asc` for the oldest first.
            starting_after: The `next_cursor` of the page before.
            options: Settings for this call.
        """
        query = {"email": email, "limit": limit, "order": order, "starting_after": starting_after}
        spec = get("customers", query=query, options=options)
        return fetch_page(self._client, spec, Customer, Page)

    def iterate(
        self,
        *,
        order: SortOrder = "desc",
        page_size: int = 100,
        max_items: int | None = None,
        starting_after: str | None = None,
        options: RequestOptions | None = None,
    ) -> Paginator[Customer]:
        """Iterate over all customers, by creation time.

        Args:
            order: `asc` for the oldest first.
            page_size: The number of customers per request, from 1 to 100.
            max_items: The maximum number of customers.
            starting_after: The `cursor` of an earlier iterator.
            options: Settings for each request.
        """
        query = {"order": order, "starting_after": starting_after}
        pages = PageIterator([get("customers", query=query, options=options)], page_size, max_items)
        return Paginator(self._client, pages, Customer)

    def get(self, customer_id: str | UUID, *, options: RequestOptions | None = None) -> Customer:
        """Return one customer.

        Args:
            customer_id: The id of the customer.
            options: Settings for this call.

        Raises:
            NotFoundError: No customer has this id.
        """
        spec = get("customers", path_segment("customer_id", customer_id), options=options)
        return self._client._execute(spec, parser_for(Customer))

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
        """Return the customer with an e-mail address, and create it when it does not exist.

        An existing customer is returned unchanged. `meta(customer).created` is True for a new customer.

        Args:
            email: The e-mail address.
            name: The name of a new customer.
            phone: The phone number of a new customer.
            email_subscription: True when the customer agreed to marketing e-mail.
            idempotency_key: Your key, see `idempotency_key()`; generated when omitted.
            options: Settings for this call.

        Raises:
            APIConnectionError: No response. If `maybe_executed`, repeat the call with the error's `idempotency_key`.
        """
        body = without_none(email=email, name=name, phone=phone, email_subscription=email_subscription or None)
        spec = post_with_key("customers", body=body, key=idempotency_key, options=options)
        return self._client._execute(spec, parser_for(Customer))
