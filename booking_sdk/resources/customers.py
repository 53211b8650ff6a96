"""Customer records: list, get and create."""

from typing import Unpack
from uuid import UUID

from booking_core.models.customers import Customer
from booking_sdk._resource import AsyncAPIResource
from booking_sdk._traceback_scrubbing import scrub_tracebacks
from booking_sdk.options import RequestOptions
from booking_sdk.pagination import AsyncPage, AsyncPaginator
from booking_sdk.params import IterateCustomers, ListCustomers
from booking_sdk.request import path_segment, without_none


@scrub_tracebacks
class AsyncCustomers(AsyncAPIResource):
    """Customer records, unique by e-mail address. Reading needs `customers:read`, creating `customers:write`."""

    async def list(self, **arguments: Unpack[ListCustomers]) -> AsyncPage[Customer]:
        """List one page of customers, by creation time.

        Args:
            **arguments: Filters and paging, see `ListCustomers`.
        """
        return await self._list(Customer, ListCustomers, "customers", arguments=arguments)

    def iterate(self, **arguments: Unpack[IterateCustomers]) -> AsyncPaginator[Customer]:
        """Iterate over all customers, by creation time.

        Args:
            **arguments: Filters and paging, see `IterateCustomers`.
        """
        return self._iterate(Customer, IterateCustomers, "customers", arguments=arguments)

    async def get(self, customer_id: str | UUID, *, options: RequestOptions | None = None) -> Customer:
        """Return one customer.

        Args:
            customer_id: The id of the customer.
            options: Settings for this call.

        Raises:
            NotFoundError: No customer has this id.
        """
        return await self._get(Customer, "customers", path_segment("customer_id", customer_id), options=options)

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
        return await self._post(Customer, "customers", body=body, key=idempotency_key, options=options)
