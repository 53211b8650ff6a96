"""Diagrams of states and of messages, drawn as inline SVG.

The drawings take their colours from the style sheet of the site, so they follow its light and dark scheme, and they
need no script in the browser. A page asks for one with a line `<!-- diagram: NAME -->`.
"""

from dataclasses import dataclass
from html import escape
from math import hypot

COLUMN, ROW = 200, 110
BOX_WIDTH, BOX_HEIGHT = 136, 44
MARGIN = 14
LANE, STEP, HEAD = 190, 46, 56


@dataclass(frozen=True, slots=True)
class State:
    """A box at a place of the grid. `kind` chooses its look: start, live, good, bad or plain."""

    name: str
    column: float
    row: float
    kind: str = "plain"


@dataclass(frozen=True, slots=True)
class Transition:
    """An arrow between two boxes; the label may have several lines. `bend` moves its middle sideways, in pixels."""

    source: str
    target: str
    label: str = ""
    bend: float = 0
    shift: tuple[float, float] = (0, 0)
    """Moves the label away from the middle of the arrow."""


@dataclass(frozen=True, slots=True)
class States:
    """A diagram of states."""

    title: str
    states: tuple[State, ...]
    transitions: tuple[Transition, ...]

    @property
    def names(self) -> frozenset[str]:
        """Return the states that are values in the code, without the point that begins the drawing."""
        return frozenset(state.name for state in self.states if state.kind != "start")

    def drawn(self) -> str:
        """Return the SVG."""
        places = {state.name: _middle(state) for state in self.states}
        width = max(x for x, _ in places.values()) + BOX_WIDTH / 2 + MARGIN
        height = max(y for _, y in places.values()) + BOX_HEIGHT / 2 + MARGIN + 16
        points = frozenset(state.name for state in self.states if state.kind == "start")
        arrows = [_arrow(each, places, points) for each in self.transitions]
        return _svg(self.title, width, height, [*arrows, *(_box(state) for state in self.states)])


@dataclass(frozen=True, slots=True)
class Message:
    """An arrow from one lane to another, or a note when both are the same. `kind`: call, answer or lost."""

    source: str
    target: str
    label: str
    kind: str = "call"


@dataclass(frozen=True, slots=True)
class Sequence:
    """A diagram of messages between lanes, read from top to bottom."""

    title: str
    lanes: tuple[str, ...]
    messages: tuple[Message, ...]
    lane_width: float = LANE

    def drawn(self) -> str:
        """Return the SVG."""
        middle = {lane: self.lane_width * (index + 0.5) for index, lane in enumerate(self.lanes)}
        height = HEAD + STEP * len(self.messages) + MARGIN
        width = self.lane_width * len(self.lanes)
        parts = [_lane(lane, middle[lane], height) for lane in self.lanes]
        for index, message in enumerate(self.messages):
            parts.append(_message(message, middle, HEAD + STEP * (index + 0.75)))
        return _svg(self.title, width, height, parts)


def _svg(title: str, width: float, height: float, parts: list[str]) -> str:
    marker = (
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
        ' orient="auto-start-reverse"><path class="d-tip" d="M0 0L10 5L0 10z"/></marker></defs>'
    )
    opening = (
        f'<svg class="diagram" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img"'
        f' style="max-width:{width:g}px" aria-label="{escape(title)}">'
    )
    return "".join(
        [
            f'<figure class="diagram">{opening}{marker}',
            *parts,
            f"</svg><figcaption>{escape(title)}</figcaption></figure>",
        ]
    )


def _middle(state: State) -> tuple[float, float]:
    return MARGIN + BOX_WIDTH / 2 + (state.column - 0.2) * COLUMN, MARGIN + BOX_HEIGHT / 2 + state.row * ROW


def _box(state: State) -> str:
    x, y = _middle(state)
    if state.kind == "start":
        return f'<circle class="d-start" cx="{x:g}" cy="{y:g}" r="9"/>' + _text(state.name, x, y + 26, "d-note")
    box = (
        f'<rect class="d-box d-{state.kind}" x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" width="{BOX_WIDTH}"'
        f' height="{BOX_HEIGHT}" rx="8"/>'
    )
    return box + _text(state.name, x, y, "d-name")


def _arrow(each: Transition, places: dict[str, tuple[float, float]], points: frozenset[str]) -> str:
    (x1, y1), (x2, y2) = places[each.source], places[each.target]
    length = hypot(x2 - x1, y2 - y1)
    across = (-(y2 - y1) / length, (x2 - x1) / length)
    bend_x, bend_y = (x1 + x2) / 2 + across[0] * each.bend, (y1 + y2) / 2 + across[1] * each.bend
    start = (x1 + 14, y1) if each.source in points else _edge((x1, y1), (bend_x, bend_y))
    end = _edge((x2, y2), (bend_x, bend_y))
    # The control point of a quadratic curve that passes through the bend.
    control = 2 * bend_x - (start[0] + end[0]) / 2, 2 * bend_y - (start[1] + end[1]) / 2
    path = f"M{start[0]:.0f} {start[1]:.0f}Q{control[0]:.0f} {control[1]:.0f} {end[0]:.0f} {end[1]:.0f}"
    line = f'<path class="d-line" d="{path}" marker-end="url(#arrow)"/>'
    label = _label(each.label, bend_x + each.shift[0], bend_y + each.shift[1]) if each.label else ""
    return line + label


def _edge(box: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Return where the line from the middle of a box leaves the box, with a little air."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    air = 4
    scale = min(
        (BOX_WIDTH / 2 + air) / abs(dx) if dx else float("inf"),
        (BOX_HEIGHT / 2 + air) / abs(dy) if dy else float("inf"),
    )
    return box[0] + dx * scale, box[1] + dy * scale


def _label(text: str, x: float, y: float) -> str:
    lines = text.split("\n")
    width = max(len(line) for line in lines) * 6.3 + 8
    top, height = y - len(lines) * 7.5, len(lines) * 15
    left = x - width / 2
    back = f'<rect class="d-back" x="{left:.0f}" y="{top - 1:.0f}" width="{width:.0f}" height="{height + 2}"/>'
    return back + "".join(_text(line, x, top + 8 + 15 * index, "d-label") for index, line in enumerate(lines))


def _text(text: str, x: float, y: float, kind: str) -> str:
    place = f'x="{x:g}" y="{y:g}" text-anchor="middle" dominant-baseline="middle"'
    return f'<text class="{kind}" {place}>{escape(text)}</text>'


def _lane(lane: str, x: float, height: float) -> str:
    box = f'<rect class="d-box d-plain" x="{x - 72:g}" y="6" width="144" height="36" rx="8"/>'
    line = f'<line class="d-lane" x1="{x:g}" y1="42" x2="{x:g}" y2="{height:g}"/>'
    return line + box + _text(lane, x, 24, "d-name")


def _message(message: Message, middle: dict[str, float], y: float) -> str:
    if message.source == message.target:
        width = len(message.label) * 6.3 + 20
        x = middle[message.source]
        place = f'x="{x - width / 2:.0f}" y="{y - 15:g}" width="{width:.0f}" height="30"'
        box = f'<rect class="d-box d-work" {place} rx="5"/>'
        return box + _text(message.label, x, y, "d-label")
    x1, x2 = middle[message.source], middle[message.target]
    away = 6 if x2 > x1 else -6
    end = x2 - away
    if message.kind == "lost":
        end = x1 + (x2 - x1) * 0.55
    line = f'<line class="d-line d-{message.kind}" x1="{x1 + away:g}" y1="{y:g}" x2="{end:g}" y2="{y:g}"'
    tip = "" if message.kind == "lost" else ' marker-end="url(#arrow)"'
    cross = _text("✕", end + away, y, "d-cross") if message.kind == "lost" else ""
    return f"{line}{tip}/>{cross}" + _text(message.label, (x1 + end) / 2, y - 10, "d-label")


BOOKING = States(
    "Life of a booking",
    (
        State("start", 0, 0.9, "start"),
        State("pending", 1.5, 0.1, "live"),
        State("confirmed", 1.5, 1.7, "good"),
        State("cancelled", 3.7, 0.9, "bad"),
    ),
    (
        Transition("start", "pending", "card checkout\nbooking.created", 0, (-20, -10)),
        Transition("start", "confirmed", "API or staff: booking.created,\nbooking.confirmed", 0, (-48, 10)),
        Transition("pending", "confirmed", "paid, or confirmed by staff\nbooking.confirmed"),
        Transition("pending", "cancelled", "not paid in time, or cancelled\nbooking.cancelled", 0, (24, -14)),
        Transition(
            "confirmed", "cancelled", "by guest, staff or API, or with\nits departure: booking.cancelled", 0, (30, 16)
        ),
    ),
)

DELIVERY = States(
    "Life of a delivery",
    (
        State("event", 0, 0.4, "start"),
        State("queued", 1, 0.4, "live"),
        State("succeeded", 3.2, 0, "good"),
        State("failed", 3.2, 0.8, "bad"),
        State("dead", 1, 1.7, "bad"),
    ),
    (
        Transition("event", "queued"),
        Transition("queued", "succeeded", "answer 2xx", 0, (-6, -4)),
        Transition("queued", "failed", "endpoint disabled or deleted", 0, (4, 8)),
        Transition("queued", "dead", "sixth attempt failed", -26, (76, 0)),
        Transition("dead", "queued", "retry: one more\nattempt", -26, (-62, 0)),
    ),
)

ENDPOINT = States(
    "Life of a webhook endpoint",
    (
        State("created", 0, 0.35, "start"),
        State("enabled", 1, 0.35, "good"),
        State("auto_disabled", 3.2, 0.35, "bad"),
        State("disabled", 1, 1.5, "live"),
    ),
    (
        Transition("created", "enabled"),
        Transition("enabled", "auto_disabled", "72 h without a success\nand six failures in a row", -22, (0, -10)),
        Transition("auto_disabled", "enabled", "PATCH status: enabled", -22, (0, 6)),
        Transition("enabled", "disabled", "PATCH status: disabled", -26, (84, 0)),
        Transition("disabled", "enabled", "", -26),
    ),
)

REFUND = States(
    "Life of a refund",
    (
        State("owed", 0, 0.6, "start"),
        State("requested", 0.85, 0.6, "live"),
        State("sending", 2.2, 0.6, "live"),
        State("succeeded", 3.7, 0, "good"),
        State("failed", 3.7, 0.85, "bad"),
        State("needs_review", 2.2, 1.8, "bad"),
        State("settled", 3.7, 1.8, "good"),
    ),
    (
        Transition("owed", "requested"),
        Transition("requested", "sending", "worker"),
        Transition("sending", "succeeded", "money returned", 0, (-10, -12)),
        Transition("sending", "failed", "refused", 0, (0, 6)),
        Transition("sending", "needs_review", "answer unclear", 0, (0, -8)),
        Transition("requested", "needs_review", "no gateway, or\nnot paid by card", 0, (-58, 6)),
        Transition("failed", "settled", "refunds settle"),
        Transition("needs_review", "settled", "refunds\nsettle"),
    ),
)

GIFT_CARD = States(
    "Status of a gift card, computed whenever it is read",
    (
        State("issued", 0, 0, "start"),
        State("active", 1, 0, "good"),
        State("expired", 3.1, 0, "bad"),
        State("inactive", 1, 1.15, "live"),
    ),
    (
        Transition("issued", "active"),
        Transition("active", "expired", "spent, or out of its validity"),
        Transition("active", "inactive", "deactivate", -26, (48, 0)),
        Transition("inactive", "active", "reactivate", -26, (-48, 0)),
    ),
)

API_KEY = States(
    "Life of an API key",
    (
        State("created", 0, 0.5, "start"),
        State("active", 1.25, 0.5, "good"),
        State("expired", 3.3, 0, "bad"),
        State("revoked", 3.3, 1.05, "bad"),
    ),
    (
        Transition("created", "active", "shown once", 0, (-26, -14)),
        Transition("active", "expired", "its end is reached, also that\nof a rotation's overlap", 0, (-14, -14)),
        Transition("active", "revoked", "keys revoke, at once", 0, (-10, 12)),
    ),
)

IDEMPOTENCY = Sequence(
    "A retry after a lost answer books nothing more",
    ("Client", "Service", "Database"),
    (
        Message("Client", "Service", "POST /bookings, key K"),
        Message("Service", "Database", "lock K, book, store the answer"),
        Message("Database", "Service", "COMMIT: booking and answer", "answer"),
        Message("Service", "Client", "201: connection lost", "lost"),
        Message("Client", "Service", "the same request, key K"),
        Message("Service", "Database", "look up K"),
        Message("Database", "Service", "the stored answer", "answer"),
        Message("Service", "Client", "201, Idempotent-Replayed: true", "answer"),
    ),
    lane_width=260,
)

KEY_OF_A_REQUEST = States(
    "Life of an idempotency key",
    (
        State("first request", 0, 0.6, "start"),
        State("in progress", 1.2, 0.6, "live"),
        State("decided", 3.1, 0, "good"),
        State("free again", 3.1, 1.2, "plain"),
    ),
    (
        Transition("first request", "in progress"),
        Transition("in progress", "decided", "success, 404, 409 or 422:\nthe answer is stored", 0, (-6, -14)),
        Transition("in progress", "free again", "any other answer:\nnothing was done", 0, (-10, 12)),
        Transition("decided", "free again", "after 30 days", 0, (0, 0)),
    ),
)

OVERSELLING = Sequence(
    "Two requests for the last seat",
    ("Request A", "Departure row", "Request B"),
    (
        Message("Request A", "Departure row", "lock"),
        Message("Request B", "Departure row", "lock: waits"),
        Message("Departure row", "Request A", "1 seat left", "answer"),
        Message("Request A", "Departure row", "take 1 seat, COMMIT"),
        Message("Departure row", "Request B", "lock granted, 0 seats left", "answer"),
        Message("Request B", "Request B", "409 insufficient_capacity"),
    ),
    lane_width=240,
)

FEED = Sequence(
    "A follower keeps a cursor and misses nothing",
    ("Follower", "Event feed", "Bookings"),
    (
        Message("Bookings", "Event feed", "COMMIT: events 1 and 2"),
        Message("Follower", "Event feed", "GET /events?order=asc"),
        Message("Event feed", "Follower", "1, 2, resume_cursor", "answer"),
        Message("Bookings", "Event feed", "COMMIT: event 3"),
        Message("Follower", "Event feed", "starting_after=resume_cursor"),
        Message("Event feed", "Follower", "3, resume_cursor", "answer"),
    ),
    lane_width=240,
)

ARCHITECTURE = Sequence(
    "A booking on its way through the service",
    ("Client", "API process", "Database", "Worker", "Receiver"),
    (
        Message("Client", "API process", "POST /bookings"),
        Message("API process", "API process", "batch what waits together"),
        Message("API process", "Database", "one transaction"),
        Message("Database", "API process", "COMMIT", "answer"),
        Message("API process", "Client", "201", "answer"),
        Message("Worker", "Database", "lease deliveries"),
        Message("Worker", "Receiver", "signed POST"),
        Message("Receiver", "Worker", "2xx", "answer"),
        Message("Worker", "Database", "record the attempt"),
    ),
    lane_width=190,
)

DIAGRAMS: dict[str, States | Sequence] = {
    "booking": BOOKING,
    "delivery": DELIVERY,
    "endpoint": ENDPOINT,
    "refund": REFUND,
    "gift-card": GIFT_CARD,
    "api-key": API_KEY,
    "idempotency": IDEMPOTENCY,
    "idempotency-key": KEY_OF_A_REQUEST,
    "overselling": OVERSELLING,
    "feed": FEED,
    "request": ARCHITECTURE,
}
