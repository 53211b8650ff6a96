"""`/api/v1/customers`: list, get, create or reuse."""

import orjson

from booking_core import customers
from booking_core.db.engine import Tx
from booking_core.errors import NotFound
from booking_core.idempotency import Answer
from booking_core.models.customers import Customer, CustomerCreate
from booking_core.models.pages import Page
from booking_core.models.scopes import Scope
from booking_server.api import params
from booking_server.api.operations import Call, Operation
from booking_server.api.routers.paged import page_request


def _find(tx: Tx, call: Call) -> object:
    return customers.find(tx, call.caller, page_request(call), email=call.query["email"])


def _get(tx: Tx, call: Call) -> object:
    return customers.get(tx, call.caller, call.ids["id"])


def _create(tx: Tx, call: Call) -> Answer:
    customer, created = customers.create(tx, call.caller, call.body)
    return Answer(201 if created else 200, orjson.dumps(customer))


OPERATIONS = (
    Operation(
        id="list_customers",
        method="GET",
        path="/api/v1/customers",
        tag="Customers",
        summary="List customers",
        scope=Scope.CUSTOMERS_READ,
        act=_find,
        query=(
            *params.LIST,
            params.text(
                "email", "The customer with this address, whatever its case.", example="ada@example.com", plus=True
            ),
        ),
        answers={200: ("A page of customers.", Page[Customer])},
    ),
    Operation(
        id="get_customer",
        method="GET",
        path="/api/v1/customers/{id}",
        tag="Customers",
        summary="Get a customer",
        scope=Scope.CUSTOMERS_READ,
        act=_get,
        answers={200: ("The customer.", Customer)},
        refusals=(NotFound,),
    ),
    Operation(
        id="create_customer",
        method="POST",
        path="/api/v1/customers",
        tag="Customers",
        summary="Create a customer, or get the one with that address",
        description=(
            "The e-mail address is the identity of a customer. One that exists is answered as it is, with 200; nothing "
            "of it is overwritten and no event is told."
        ),
        scope=Scope.CUSTOMERS_WRITE,
        write=_create,
        body=CustomerCreate,
        idempotency="optional",
        answers={201: ("The new customer.", Customer), 200: ("The customer that has this address.", Customer)},
        example={"email": "ada@example.com", "name": "Ada Lovelace", "phone": "+47 900 00 000"},
    ),
)
