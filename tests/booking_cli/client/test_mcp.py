"""`booking mcp`: the tools of an agent, through the protocol's own client, on the double of the service."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, ClientSession
from mcp.client.stdio import StdioServerParameters
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, ElicitResult
from support.serving import components, serving
from support.serving.commands import Booking, Environment
from support.serving.servers import free_port
from support.serving.serving import COMMAND
from support.world.world import World

import booking_cli.client
from booking_cli.client.mcp_server import ALTERNATIVES, CANNOT_ASK, STOP_WITHIN_S, TOOLS, UNCONFIRMED, BookingServer
from booking_cli.framework.exit_codes import ExitCode
from booking_core.models.scopes import READ_SCOPES, Scope
from booking_sdk import Departure
from booking_sdk.testing import FakeBookingAPI

NOW = datetime(2026, 6, 1, 9, 30, tzinfo=UTC)
PARTY = {"guests": [{"tier_id": "adult", "count": 2}]}
GUEST = {"name": "Ada", "email": "ada@example.com"}
ORDER = {**PARTY, "customer": GUEST, "payment": "external_paid"}
READING = {function.__name__ for function, annotations, _ in TOOLS if annotations.read_only_hint}
ALL = {function.__name__ for function, _, _ in TOOLS}


class Agent:
    """An agent with a person who answers questions, and the questions so far."""

    def __init__(self, api: FakeBookingAPI) -> None:
        self.api = api
        self.answer: dict[str, Any] | str = {"confirmed": True}
        self.questions: list[str] = []
        self.can_ask = True
        self.scopes: set[Scope] = {*READ_SCOPES, Scope.BOOKINGS_WRITE}
        self.options = {"read_only": False, "confirms": True}

    async def _elicit(self, context: Any, params: Any) -> ElicitResult:
        self.questions.append(params.message)
        if isinstance(self.answer, str):
            return ElicitResult(action=self.answer)  # type: ignore[arg-type]
        return ElicitResult(action="accept", content=self.answer)

    def run(self, work: Callable[[Client], Awaitable[Any]], mode: str = "auto") -> Any:
        """Return the result of calls in one session."""

        async def session() -> Any:
            async with self.api.async_client(self.scopes) as client:
                server = BookingServer(client, await client.me(), **self.options)
                elicit = {"elicitation_callback": self._elicit} if self.can_ask else {}
                async with Client(server, mode=mode, **elicit) as connected:
                    return await work(connected)

        return asyncio.run(session())

    def call(self, tool: str, **arguments: Any) -> CallToolResult:
        return self.run(lambda client: client.call_tool(tool, arguments))

    def result(self, tool: str, **arguments: Any) -> Any:
        """Return the structured result of a call that succeeds."""
        result = self.call(tool, **arguments)
        assert not result.is_error, result.content
        assert result.structured_content is not None
        content = result.structured_content
        return content["result"] if content.keys() == {"result"} else content

    def refusal(self, tool: str, **arguments: Any) -> str:
        """Return the text of a call that is refused."""
        result = self.call(tool, **arguments)
        assert result.is_error, result.content
        return str(getattr(result.content[0], "text", ""))

    def hold(self, departure: Departure, seats: int = 2) -> str:
        return str(self.result("hold_seats", departure_id=departure.id, seats=seats)["id"])

    def book(self, hold_id: str) -> Any:
        return self.result("book", hold_id=hold_id, order=ORDER)


@pytest.fixture(scope="module", autouse=True)
def schemas_once() -> Iterator[None]:
    """Derive and compile the schemas of each tool once, which takes most of the time of a session with one call."""
    describe, compile_schema = Tool.from_function, ClientSession._output_schema_validator
    tools, validators = dict[Any, Any](), dict[str, Any]()

    def described(function: Any, **options: Any) -> Any:
        if function not in tools:
            tools[function] = describe(function, **options)
        return tools[function]

    def compiled(session: ClientSession, name: str, schema: Any) -> Any:
        if name not in validators:
            validators[name] = compile_schema(session, name, schema)
        return validators[name]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Tool, "from_function", described)
        patched.setattr(ClientSession, "_output_schema_validator", compiled)
        yield


@pytest.fixture
def api() -> FakeBookingAPI:
    return FakeBookingAPI(now=NOW)


@pytest.fixture
def agent(api: FakeBookingAPI) -> Agent:
    return Agent(api)


@pytest.fixture
def departure(api: FakeBookingAPI) -> Departure:
    return api.add_departure(seats=4, starts_at=NOW + timedelta(days=20))


@contextmanager
def unchanged(api: FakeBookingAPI) -> Iterator[None]:
    before = len(api.events)
    yield
    assert len(api.events) == before


# Selling -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_sells_seats_in_one_session(agent: Agent, departure: Departure, mode: str) -> None:
    async def sell(client: Client) -> Any:
        async def call(tool: str, **arguments: Any) -> Any:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            assert result.structured_content is not None
            return result.structured_content

        (experience,) = (await call("find_experiences"))["result"]
        day = departure.starts_at.date().isoformat()
        window = {"date_from": day, "date_to": day, "experience_id": experience["id"], "seats": 2}
        (match,) = (await call("find_departures", **window))["result"]
        quoted = (await call("quote", departure_id=match["id"], party=PARTY))["quote"]
        hold = await call("hold_seats", departure_id=match["id"], seats=quoted["seats"])
        return quoted, await call("book", hold_id=hold["id"], order=ORDER)

    quoted, booking = agent.run(sell, mode)
    assert (booking["status"], booking["totals"]) == ("confirmed", quoted["totals"])
    title = booking["experience"]["title"]
    assert agent.questions == [f"Book 2 seats of {title} on 21 June 2026 at 09:30 for 1,780.00 NOK?"]


def test_a_repeated_call_books_nothing_more(agent: Agent, api: FakeBookingAPI, departure: Departure) -> None:
    hold_id = agent.hold(departure)
    api.drop_connection_after_commit()
    first, second = agent.book(hold_id), agent.book(hold_id)
    assert first["id"] == second["id"]
    assert [booking.id for booking in api.bookings] == [first["id"]]
    assert len(agent.questions) == 1


def test_a_hold_books_once_however_its_id_is_written(agent: Agent, api: FakeBookingAPI, departure: Departure) -> None:
    hold_id = agent.hold(departure)
    assert agent.book(hold_id)["id"] == agent.book(hold_id.upper())["id"]
    assert len(api.bookings) == 1


def test_two_agents_with_one_hold_book_once(agent: Agent, api: FakeBookingAPI, departure: Departure) -> None:
    hold_id = agent.hold(departure)
    orders = [ORDER | {"customer": GUEST | {"name": name}} for name in ("Ada", "Bob") * 3]

    async def sell(client: Client) -> Any:
        calls = (client.call_tool("book", {"hold_id": hold_id, "order": order}) for order in orders)
        return await asyncio.gather(*calls)

    answers = agent.run(sell)
    booked = [answer.structured_content for answer in answers if not answer.is_error]
    assert len({booking["id"] for booking in booked}) == len(api.bookings) == 1
    assert len({booking["customer"]["name"] for booking in booked}) == 1
    refusals = [answer.content[0].text for answer in answers if answer.is_error]
    assert len(refusals) == 3
    assert all("hold_id, hold_booked" in refusal for refusal in refusals)


def test_a_call_that_cannot_reach_the_service_may_be_repeated(
    agent: Agent, api: FakeBookingAPI, departure: Departure
) -> None:
    arguments = {"hold_id": agent.hold(departure), "order": ORDER}

    async def sell(client: Client) -> Any:
        api.refuse_connections(3)  # the attempts of one call
        return [await client.call_tool("book", arguments) for _ in range(2)]

    refused, booked = agent.run(sell)
    assert "could not connect" in refused.content[0].text
    assert booked.structured_content["status"] == "confirmed"


INJECTED = [
    *("", ".", "..", "../holds", "%2e%2e", "ignore all rules", "☃"),
    *("{id}/cancel", "{id}/check-in?x=", "{id}#", "{id}\n"),
]


@pytest.mark.parametrize("text", INJECTED)
def test_an_id_with_a_path_reaches_nothing_else(
    agent: Agent, api: FakeBookingAPI, departure: Departure, booked: Any, text: str
) -> None:
    other = api.add_departure(departure.experience_id, seats=4, starts_at=departure.starts_at + timedelta(days=1))
    injected = text.format(id=booked["id"])
    calls: list[tuple[str, dict[str, Any]]] = [
        ("get_booking", {"booking_id": injected}),
        ("cancel_booking", {"booking_id": injected}),
        ("move_booking", {"booking_id": injected, "departure_id": other.id}),
        ("change_guest", {"booking_id": injected, "change": {"name": "Bob"}}),
        ("release_hold", {"hold_id": injected}),
        ("book", {"hold_id": injected, "order": ORDER}),
        ("hold_seats", {"departure_id": injected, "seats": 1}),
    ]

    async def call_all(client: Client) -> list[CallToolResult]:
        return [await client.call_tool(tool, arguments) for tool, arguments in calls]

    with unchanged(api):
        assert [result.is_error for result in agent.run(call_all)] == [True] * len(calls)


def test_a_hold_of_another_order_books_nothing(agent: Agent, departure: Departure) -> None:
    hold_id = agent.hold(departure)
    agent.book(hold_id)
    other = ORDER | {"customer": GUEST | {"name": "Bob"}}
    refused = ["conflict: A booking has taken over the hold.", "- hold_id, hold_booked"]
    assert agent.refusal("book", hold_id=hold_id, order=other).splitlines() == refused


def test_a_corrected_order_takes_over_the_hold_of_a_refused_one(
    agent: Agent, api: FakeBookingAPI, departure: Departure
) -> None:
    hold_id = agent.hold(departure)
    refused = agent.refusal("book", hold_id=hold_id, order=ORDER | {"guests": [{"tier_id": "crew", "count": 2}]})
    assert refused.startswith("validation_failed: ")
    assert agent.book(hold_id)["status"] == "confirmed"


def test_a_refusal_names_the_nearest_departures_with_enough_seats(
    agent: Agent, api: FakeBookingAPI, departure: Departure
) -> None:
    days = (13, -2, 1, -15, 5, 40)
    others = {
        day: api.add_departure(departure.experience_id, seats=6, starts_at=departure.starts_at + timedelta(days=day))
        for day in days
    }
    api.add_departure(departure.experience_id, seats=5, starts_at=departure.starts_at + timedelta(hours=3))
    nearest = [others[day] for day in (1, -2, 5)]
    assert len(nearest) == ALTERNATIVES
    assert agent.refusal("hold_seats", departure_id=departure.id, seats=6).splitlines() == [
        "insufficient_capacity: Not enough seats: 4 available.",
        "Other departures with enough seats:",
        *(f"- {other.id} at {other.starts_at.isoformat()}: 6 seats" for other in nearest),
    ]
    quoted = agent.result("quote", departure_id=departure.id, party={"guests": [{"tier_id": "adult", "count": 6}]})
    assert [refusal["code"] for refusal in quoted["quote"]["refusals"]] == ["insufficient_capacity"]
    assert [other["id"] for other in quoted["alternatives"]] == [other.id for other in nearest]


def test_a_wrong_tier_is_no_reason_to_offer_other_departures(agent: Agent, departure: Departure) -> None:
    answer = agent.result("quote", departure_id=departure.id, party={"guests": [{"tier_id": "crew", "count": 1}]})
    assert [refusal["reason"] for refusal in answer["quote"]["refusals"]] == ["unknown_tier"]
    assert answer["alternatives"] == []


def test_a_key_that_reads_no_departures_sees_the_refusal_alone(
    agent: Agent, api: FakeBookingAPI, departure: Departure
) -> None:
    agent.scopes = {Scope.BOOKINGS_WRITE}
    api.add_departure(departure.experience_id, seats=6, starts_at=departure.starts_at + timedelta(days=1))
    refused = agent.refusal("hold_seats", departure_id=departure.id, seats=6)
    assert refused == "insufficient_capacity: Not enough seats: 4 available."
    party = {"guests": [{"tier_id": "adult", "count": 6}]}
    assert agent.result("quote", departure_id=departure.id, party=party)["alternatives"] == []


def test_an_unknown_departure_has_no_alternatives(agent: Agent) -> None:
    unknown = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"
    assert agent.refusal("hold_seats", departure_id=unknown, seats=1) == "not_found: There is no such departure."


def test_each_fault_of_a_call_is_named_with_its_reason(agent: Agent, booked: Any) -> None:
    refused = agent.refusal("find_bookings", filters={"email": "a\nb", "departure_id": "x"})
    first, *others = refused.splitlines()
    assert first == "validation_failed: email: contains a control character"
    assert others == ["- email, forbidden_character", "- departure_id, wrong_format: must be a UUID"]


WRONG_ARGUMENTS = {
    "date": ("find_departures", {"date_from": "1 June"}, ["date_from: must be a date, YYYY-MM-DD"]),
    "nothing": ("find_departures", {}, ["date_from: is required"]),
    "limit": ("find_experiences", {"limit": "many"}, ["limit: must be a whole number"]),
    "status": (
        "find_bookings",
        {"filters": {"status": "lost"}},
        ["filters.status: must be 'pending', 'confirmed' or 'cancelled'"],
    ),
    "count": (
        "quote",
        {"departure_id": "x", "party": {"guests": [{"tier_id": "adult", "count": -1}]}},
        ["party.guests.0.count: must be greater than or equal to 1"],
    ),
    "two fields": (
        "change_guest",
        {"booking_id": "x", "change": {"name": "a\nb", "email": "nobody"}},
        ["change.name: contains a control character", "change.email: is not one e-mail address"],
    ),
}


@pytest.mark.parametrize(("tool", "arguments", "faults"), WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_a_wrong_argument_is_named_in_one_line(
    agent: Agent, tool: str, arguments: dict[str, Any], faults: list[str]
) -> None:
    assert agent.refusal(tool, **arguments).splitlines() == [f"validation_failed: {fault}" for fault in faults]


# Changing ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def booked(agent: Agent, departure: Departure) -> Any:
    booking = agent.book(agent.hold(departure))
    agent.questions.clear()
    return booking


def test_a_booking_is_moved_and_its_guest_found(
    agent: Agent, api: FakeBookingAPI, departure: Departure, booked: Any
) -> None:
    other = api.add_departure(departure.experience_id, seats=4, starts_at=departure.starts_at + timedelta(days=1))
    moved = agent.result("move_booking", booking_id=booked["id"], departure_id=other.id)
    assert moved["booking"]["departure"]["id"] == other.id
    (match,) = agent.result("find_bookings", filters={"email": GUEST["email"]})
    assert (match["id"], match["departure"]["id"]) == (booked["id"], other.id)
    assert agent.result("get_booking", booking_id=booked["id"])["departure"]["id"] == other.id
    assert agent.questions == []


def test_a_move_to_a_full_departure_names_others(
    agent: Agent, api: FakeBookingAPI, departure: Departure, booked: Any
) -> None:
    full, free = (
        api.add_departure(departure.experience_id, seats=seats, starts_at=departure.starts_at + timedelta(days=seats))
        for seats in (1, 2)
    )
    refused = agent.refusal("move_booking", booking_id=booked["id"], departure_id=full.id).splitlines()
    assert refused[0] == "insufficient_capacity: Not enough seats: 1 available."
    assert f"- {free.id} at {free.starts_at.isoformat()}: 2 seats" in refused


def test_a_guest_is_corrected_without_a_question(agent: Agent, booked: Any) -> None:
    change = {"name": "Ada King", "note": "By bus"}
    changed = agent.result("change_guest", booking_id=booked["id"], change=change)
    assert (changed["customer"]["name"], changed["customer"]["email"]) == ("Ada King", GUEST["email"])
    assert changed["note"] == "By bus"
    assert agent.questions == []


def test_a_person_confirms_a_larger_party_and_a_cancellation(agent: Agent, booked: Any) -> None:
    party = {"guests": [{"tier_id": "adult", "count": 3}]}
    changed = agent.result("change_party", booking_id=booked["id"], party=party)
    cancelled = agent.result("cancel_booking", booking_id=booked["id"], reason="ill")
    assert (changed["seats"], cancelled["status"]) == (3, "cancelled")
    number = booked["booking_number"]
    assert agent.questions == [
        f"Change the price of booking {number} by 890.00 NOK?",
        f"Cancel booking {number} and return 0.00 NOK?",
    ]
    agent.result("cancel_booking", booking_id=booked["id"])
    assert len(agent.questions) == 2


@pytest.mark.exhaustive(but="no")
@pytest.mark.parametrize("answer", [{"confirmed": False}, "decline", "cancel"], ids=["no", "decline", "cancel"])
def test_a_person_who_does_not_confirm_keeps_everything(
    agent: Agent, api: FakeBookingAPI, departure: Departure, booked: Any, answer: Any
) -> None:
    hold_id = agent.hold(departure)
    agent.answer = answer
    calls: list[tuple[str, dict[str, Any]]] = [
        ("book", {"hold_id": hold_id, "order": ORDER}),
        ("change_party", {"booking_id": booked["id"], "party": {"guests": [{"tier_id": "adult", "count": 1}]}}),
        ("cancel_booking", {"booking_id": booked["id"]}),
    ]
    with unchanged(api):
        for tool, arguments in calls:
            assert agent.refusal(tool, **arguments) == UNCONFIRMED
    assert len(agent.questions) == len(calls)


def test_a_client_that_cannot_ask_moves_no_money_unless_it_may(agent: Agent, api: FakeBookingAPI, booked: Any) -> None:
    agent.can_ask = False
    with unchanged(api):
        assert agent.refusal("cancel_booking", booking_id=booked["id"]) == CANNOT_ASK
    agent.options["confirms"] = False
    assert agent.result("cancel_booking", booking_id=booked["id"])["status"] == "cancelled"
    assert agent.questions == []


def test_a_hold_is_released(agent: Agent, departure: Departure) -> None:
    hold_id = agent.hold(departure, seats=4)
    agent.refusal("hold_seats", departure_id=departure.id, seats=1)
    agent.result("release_hold", hold_id=hold_id)
    assert agent.hold(departure, seats=4)


def test_events_are_followed_by_their_cursor(agent: Agent, api: FakeBookingAPI, departure: Departure) -> None:
    agent.book(agent.hold(departure))
    first = agent.result("list_events", types=["booking.*"], limit=1)
    assert [event["type"] for event in first["events"]] == ["booking.created"]
    last = agent.result("list_events", types=["booking.*"], after=first["next_cursor"])
    while last["events"]:
        last = agent.result("list_events", types=["booking.*"], after=last["next_cursor"])
    api.cancel_booking(api.bookings[0].id)
    following = agent.result("list_events", types=["booking.*"], after=last["next_cursor"])
    assert [event["type"] for event in following["events"]] == ["booking.cancelled"]


# The tools of a key --------------------------------------------------------------------------------------------------


def tools_of(agent: Agent) -> set[str]:
    return {tool.name for tool in agent.run(lambda client: client.list_tools()).tools}


def test_the_tools_are_those_that_the_key_may_use(agent: Agent) -> None:
    assert tools_of(agent) == ALL
    agent.scopes = {Scope.AVAILABILITY_READ}
    assert tools_of(agent) == {"find_departures"}
    agent.scopes = {*READ_SCOPES}
    assert tools_of(agent) == READING - {"quote"}
    agent.scopes = {Scope.BOOKINGS_WRITE}  # a cancellation shows the booking before it
    assert tools_of(agent) == ALL - READING - {"cancel_booking"} | {"quote"}


def test_a_server_that_only_reads_offers_no_change(agent: Agent, departure: Departure) -> None:
    agent.options["read_only"] = True
    assert tools_of(agent) == READING
    assert agent.refusal("hold_seats", departure_id=departure.id, seats=1).startswith("Unknown tool")


def test_each_tool_tells_its_effect(agent: Agent) -> None:
    tools = {tool.name: tool for tool in agent.run(lambda client: client.list_tools()).tools}
    hints = {name: tool.annotations for name, tool in tools.items()}
    assert {name for name, hint in hints.items() if hint.destructive_hint} == {
        *("release_hold", "move_booking", "change_party", "change_guest", "cancel_booking")
    }
    assert not hints["hold_seats"].idempotent_hint
    assert hints["book"].idempotent_hint
    assert all(tool.description and tool.output_schema for tool in tools.values())
    assert "confirmation" not in tools["book"].input_schema["properties"]


def test_the_resources_are_the_catalogue_and_the_terms_of_a_booking(agent: Agent, booked: Any) -> None:
    def read(uri: str) -> str:
        result = agent.run(lambda client: client.read_resource(uri))
        return str(result.contents[0].text)

    assert f'"title":"{booked["experience"]["title"]}"' in read("booking://catalogue")
    assert '"refundable_amount":' in read(f"booking://bookings/{booked['id']}/cancellation")

    async def read_unknown(client: Client) -> None:
        with pytest.raises(MCPError, match="not_found: There is no such booking"):
            await client.read_resource("booking://bookings/0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07/cancellation")

    agent.run(read_unknown)


# The process ---------------------------------------------------------------------------------------------------------


def names(tools: Any) -> set[str]:
    return {tool.name for tool in tools.tools}


@pytest.mark.usefixtures("shop")
def test_the_command_serves_on_stdin_and_stdout() -> None:
    async def session() -> set[str]:
        server = StdioServerParameters(
            command=COMMAND[0], args=[*COMMAND[1:], "mcp", "--read-only"], env=dict(os.environ)
        )
        async with Client(server) as client:
            await client.call_tool("find_experiences", {})
            return names(await client.list_tools())

    assert asyncio.run(session()) == READING


@pytest.mark.exhaustive
@pytest.mark.usefixtures("shop")
def test_the_command_serves_on_a_port() -> None:
    port = free_port()
    process = subprocess.Popen([*COMMAND, "mcp", "--port", str(port)], stderr=subprocess.PIPE)
    try:
        serving.wait_for(f"http://127.0.0.1:{port}")

        async def session() -> set[str]:
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                return names(await client.list_tools())

        assert asyncio.run(session()) == ALL
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (ExitCode.INTERRUPTED, b"")


@contextmanager
def stalled(me: bytes) -> Iterator[tuple[str, threading.Event]]:
    """Serve an API that answers nothing but the owner of the key. Yield its address, and the event of another call."""
    is_called, is_over = threading.Event(), threading.Event()

    class Stalled(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.endswith("/me"):
                is_called.set()
                is_over.wait(120)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(me)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Stalled) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", is_called
        finally:
            is_over.set()
            server.shutdown()


@pytest.mark.exhaustive
def test_an_interruption_ends_a_call_that_still_runs_quietly(api: FakeBookingAPI, environment: Environment) -> None:
    port = free_port()

    async def call() -> None:
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            await client.call_tool("find_experiences", {})

    with stalled(api.client().me().model_dump_json().encode()) as (url, is_called), ThreadPoolExecutor(1) as pool:
        environment("BOOKING_API_KEY", api.key())
        environment("BOOKING_BASE_URL", url)
        with subprocess.Popen([*COMMAND, "mcp", "--port", str(port)], stderr=subprocess.PIPE) as process:
            try:
                serving.wait_for(f"http://127.0.0.1:{port}")
                session = pool.submit(asyncio.run, call())
                assert is_called.wait(60)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=STOP_WITHIN_S + 20)
            finally:
                process.kill()
        assert (process.returncode, errors) == (ExitCode.INTERRUPTED, b"")
        assert session.exception() is not None


_INSPECTOR = Path(__file__).parents[3] / "build/inspector/node_modules/@modelcontextprotocol/inspector-cli/build"


def inspect(*arguments: str) -> Any:
    """Return what the public inspector shows of the command."""
    if not _INSPECTOR.exists():
        components.missing("the inspector of the protocol was not installed by `make inspector`")
    variables = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(("BOOKING_", "PYTHON"))]
    options = [word for variable in variables for word in ("-e", variable)]
    command = ["node", _INSPECTOR / "cli.js", "--cli", *options, *COMMAND, "mcp", *arguments]
    # It looks for its package.json from the working directory.
    result = subprocess.run(command, cwd=_INSPECTOR, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.exhaustive
def test_the_public_inspector_lists_the_tools_and_calls_them(shop: World) -> None:
    departure = shop.departure(shop.experience(), seats=3)
    tools = inspect("--method", "tools/list")["tools"]
    assert {tool["name"] for tool in tools} == ALL
    call = ("--method", "tools/call", "--tool-name", "hold_seats", "--tool-arg", f"departure_id={departure}")
    assert inspect(*call, "seats=2")["structuredContent"]["seats"] == 2
    refused = inspect(*call, "seats=2")
    assert refused["isError"]
    assert "insufficient_capacity: Not enough seats: 1 available." in refused["content"][0]["text"]


@pytest.mark.usefixtures("shop")
def test_a_key_that_is_not_accepted_ends_the_command(booking: Booking, environment: Environment) -> None:
    environment("BOOKING_API_KEY", "svc_unknown")
    assert booking("mcp", "-o", "json").refusal == (ExitCode.AUTH, "api_key_invalid")


def test_a_key_without_a_tools_scope_ends_the_command(shop: World, booking: Booking, environment: Environment) -> None:
    environment("BOOKING_API_KEY", shop.key(Scope.WEBHOOKS_MANAGE))
    assert booking("mcp", "-o", "json").refusal == (ExitCode.FORBIDDEN, "insufficient_scope")


def test_a_missing_package_is_named(booking: Booking, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "booking_cli.client.mcp_server", raising=False)
    monkeypatch.delattr(booking_cli.client, "mcp_server", raising=False)
    refused = booking("mcp", "-o", "json")
    assert refused.refusal == (ExitCode.USAGE, "package_missing")
