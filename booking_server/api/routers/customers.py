"""`/api/v1/customers`: list, get, create or reuse."""

from typing import Annotated

import orjson
import pydantic
from fastapi import Query

from booking_core import customers
from booking_core.db.engine import Tx
from booking_core.models.customers import Customer, CustomerCreate
from booking_core.models.pages import Page
from booking_core.records.idempotency import Answer
from booking_server.api.commands import OptionallyIdempotentCommand
from booking_server.api.dependencies import ApiRouter, CustomersReader, CustomersWriter, Lane, ReadTx, runs_in
from booking_server.api.parameters import EmailText, ListQuery, PathId

router = ApiRouter(prefix="/api/v1/customers", tags=["Customers"])


class CustomerQuery(ListQuery):
    """The filters of the list of customers."""

    email: EmailText | None = pydantic.Field(None, examples=["ada@example.com"])
    """The customer with this address. Case does not matter."""


@router.get(
    "",
    summary="List customers",
    response_model=Page[Customer],
    response_description="A page of customers.",
)
@runs_in(Lane.LISTS)
def list_customers(caller: CustomersReader, tx: ReadTx, query: Annotated[CustomerQuery, Query()]) -> object:
    return customers.find(tx, caller, query.page, email=query.email)


@router.get(
    "/{id}",
    summary="Get a customer",
    response_model=Customer,
    response_description="The customer.",
)
@runs_in(Lane.LOOK_UPS, has_etag=True)
def get_customer(caller: CustomersReader, tx: ReadTx, customer_id: PathId) -> object:
    return customers.get(tx, caller, customer_id)


@router.post(
    "",
    summary="Create a customer, or get the existing one",
    status_code=201,
    response_model=Customer,
    response_description="The new customer.",
    responses={200: {"model": Customer, "description": "The customer that has this address."}},
)
async def create_customer(
    caller: CustomersWriter, command: OptionallyIdempotentCommand, body: CustomerCreate
) -> Answer:
    """The e-mail address identifies a customer. An existing customer is answered unchanged, with 200; nothing is
    overwritten and no event is published."""

    def create(tx: Tx) -> Answer:
        customer, is_new = customers.create(tx, caller, body)
        return Answer(201 if is_new else 200, orjson.dumps(customer))

    return await command.write(caller, create)
