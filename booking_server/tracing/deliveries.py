"""Spans of delivery attempts, which continue the trace of the request that caused the event."""

from collections.abc import Sequence

from opentelemetry.trace import SpanKind, StatusCode

import webhook_verify
from booking_server.adapters.webhook_client import Sent
from booking_server.tracing.tracing import TRACEPARENT, Tracing, continued, traceparent_of
from booking_server.worker.deliveries import Sender


class TracedSender:
    """Makes a span of each attempt, and passes it to the receiver as `traceparent`.

    The parent is the trace context that was kept with the event: that of the request, in another process and perhaps
    hours ago. A share of the others begin a trace here.
    """

    def __init__(self, sender: Sender, tracing: Tracing) -> None:
        self._sender = sender
        self._tracing = tracing

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
        found = dict(headers)
        kept = found.pop(TRACEPARENT, None)
        if not kept and not self._tracing.may_begin():
            return await self._sender.send(url, headers, body)
        event_type = found[webhook_verify.EVENT_TYPE_HEADER]
        attributes = {
            "http.request.method": "POST",
            "booking.event.type": event_type,
            "booking.event.id": found[webhook_verify.EVENT_ID_HEADER],
            "booking.attempt.id": found[webhook_verify.DELIVERY_ID_HEADER],
        }
        context = continued([kept] if kept else [])
        with self._tracing.span(f"deliver {event_type}", context, kind=SpanKind.CLIENT, attributes=attributes) as span:
            own = traceparent_of(span)
            sent = await self._sender.send(url, [*found.items(), *([(TRACEPARENT, own)] if own else [])], body)
            if sent.status is not None:
                span.set_attribute("http.response.status_code", sent.status)
            if sent.error is not None:
                span.set_attribute("error.type", sent.error.value)
                span.set_status(StatusCode.ERROR)
        return sent

    async def close(self) -> None:
        await self._sender.close()
