"""Follow an organization that has moved: its older keys and links name the cell where they were made.

That cell refuses them, and knows where the organization went. What was found is remembered until the other cell refuses
it too. A link is looked up before it is opened, since its booking may still be there for a moment.
"""

import asyncio
from collections.abc import Mapping

from starlette.types import Message, Receive, Send

from booking_core import cells
from booking_core.errors import BookingError
from booking_server.cells.slots import Slot

_REMEMBERED_MAX = 20_000
_UNAUTHORIZED = 401
_INVALID = b'"code":"api_key_invalid"'


class Directory:
    """Knows where organizations went that have left the cell that their keys and links name."""

    def __init__(self, slots: Mapping[str, Slot]) -> None:
        self._slots = slots
        self._moved: dict[str, str] = {}

    def remembered(self, subject: str) -> Slot | None:
        """Return the cell where the organization was found last, if it had moved."""
        return self._slots.get(self._moved.get(subject, ""))

    async def next_cell(self, slot: Slot, subject: str) -> Slot | None:
        """Return the cell to which the organization left this one; None if it did not."""
        self._moved.pop(subject, None)
        opened = slot.opened
        if opened is None:
            return None
        try:
            with slot.entered():
                name = await asyncio.to_thread(opened.database.read, lambda tx: cells.forwarded_to(tx, subject))
        except BookingError:  # the cell is away, and says so itself
            return None
        found = self._slots.get(name or "")
        if found is not None:
            if len(self._moved) >= _REMEMBERED_MAX:
                self._moved = dict(list(self._moved.items())[_REMEMBERED_MAX // 2 :])
            self._moved[subject] = found.name
        return found

    async def cell_of_link(self, slot: Slot, organization_id: str) -> Slot:
        """Return the cell where the organization of a guest's link lives, from the one that the link names."""
        slot = self.remembered(organization_id) or slot
        for _ in self._slots:
            following = await self.next_cell(slot, organization_id)
            if following is None:
                return slot
            slot = following
        return slot


class Replayed:
    """The body of a request, which a second application can read again."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: list[Message] = []
        self._place = 0

    async def receive(self) -> Message:
        if self._place < len(self._kept):
            self._place += 1
            return self._kept[self._place - 1]
        message = await self._receive()
        if message["type"] == "http.request":
            self._kept.append(message)
            self._place += 1
        return message

    def rewind(self) -> None:
        """Let the next application read from the beginning."""
        self._place = 0


class Withheld:
    """A response that is sent on, except for the refusal of a key that is not known."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._messages: list[Message] = []
        self.is_refusal = False
        """It was the refusal of an unknown key, and was not sent."""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == _UNAUTHORIZED:
            self._messages = [message]
        elif not self._messages:
            await self._send(message)
        else:
            self._messages.append(message)
            if not message.get("more_body"):
                await self._end()

    async def _end(self) -> None:
        self.is_refusal = any(_INVALID in message.get("body", b"") for message in self._messages)
        if not self.is_refusal:
            await self.release()

    async def release(self) -> None:
        """Send what was withheld."""
        messages, self._messages = self._messages, []
        for message in messages:
            await self._send(message)
