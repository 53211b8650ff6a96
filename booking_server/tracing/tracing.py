"""Spans of requests, of the batches that carry them, and of deliveries.

A span has ids, names from this code, and states. It never has text from a client, a guest or a receiver: no paths,
which may be a guest's link, no queries, addresses or error messages.
"""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    StatusCode,
    TracerProvider,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import Scope

import webhook_verify
from booking_server.adapters.webhook_client import Sent
from booking_server.execution.authenticator import Credentials
from booking_server.monitoring.metrics import UNROUTED, operation_of
from booking_server.request_state import state_of
from booking_server.worker.deliveries import Sender

TRACEPARENT = "traceparent"
_FAILED = 500
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER_METHOD = "_OTHER"
"""The name of any other method by OpenTelemetry's conventions: a client may send any text as one."""
_DISCONNECTED = "client_disconnected"

_request: ContextVar[Span | None] = ContextVar("booking_request_span", default=None)
"""The span of the request that runs now, if it is recorded or continues a trace. It is cheaper to find than the current
one."""
_propagator = TraceContextTextMapPropagator()


class Tracing:
    """Makes the spans of one process.

    Args:
        provider: of OpenTelemetry's SDK, or of another implementation of its API.
        share: of the requests that begin a trace here, from 0 to 1. The provider is not called for the others, at 6
            microseconds each. Its sampler decides about requests that continue a trace.
        close: sends the spans that wait, and ends the provider.
    """

    def __init__(
        self, provider: TracerProvider, *, share: float = 1.0, close: Callable[[], None] = lambda: None
    ) -> None:
        self.tracer = provider.get_tracer("booking_server")
        self.close = close
        self._share = share
        self.organization_of: Callable[[Credentials], str | None] = lambda _: None
        """Returns the organization of a request whose key is valid."""

    # Requests --------------------------------------------------------------------------------------------------------

    def begin_request(self, scope: Scope) -> None:
        """Begin the span of a request, as a child of the caller's if the request names one.

        It becomes the current one only if it is recorded or continues a trace: nothing would be done with any other.
        """
        sent = _traceparents(scope)
        if not sent and not self.may_begin():
            return
        parent = continued(sent) if sent else None
        method = scope["method"] if scope["method"] in _METHODS else _OTHER_METHOD
        span = self.tracer.start_span(method, parent, SpanKind.SERVER, {"http.request.method": method})
        if sent or span.is_recording():
            state = state_of(scope)
            state.span, state.span_token = span, contexts.attach(set_span_in_context(span, parent))
            _request.set(span)

    def may_begin(self) -> bool:
        """Return whether a trace that begins now is one of the share."""
        return self._share >= 1 or random.random() < self._share

    def end_request(self, scope: Scope, status: int) -> None:
        """End the span of a request.

        Args:
            status: of the response; 0 if the client had disconnected before it began.
        """
        state = state_of(scope)
        span: Span | None = state.span
        if span is None:
            return
        contexts.detach(state.span_token)
        _request.set(None)
        if span.is_recording():
            span.set_attributes(self._result(scope, status))
            operation = operation_of(scope)
            if operation != UNROUTED:
                span.update_name(f"{scope['method']} {_route(scope)}")
            if status >= _FAILED:
                span.set_status(StatusCode.ERROR)
        span.end()

    def _result(self, scope: Scope, status: int) -> dict[str, Any]:
        state = state_of(scope)
        attributes = {
            "booking.operation": operation_of(scope),
            "booking.request_id": state.request_id,
            "booking.organization_id": self.organization_of(state.credentials),
            "http.route": _route(scope),
            "http.response.status_code": status or None,
            "booking.error.code": state.error_code,
            "error.type": _error_type(status, state.error_code),
        }
        return {name: value for name, value in attributes.items() if value is not None}

    def current(self) -> Span | None:
        """Return the span of the request that runs now, if it is recorded."""
        span = _request.get()
        return span if span is not None and span.is_recording() else None

    def traceparent(self) -> str | None:
        """Return the trace context (W3C) of the request that runs now, if it is recorded or continues a trace."""
        span = _request.get()
        return None if span is None else traceparent_of(span)

    # Batches ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def batch(self, lane: str, spans: Sequence[Span], size: int) -> Iterator[None]:
        """Make the span of a batch while the body runs.

        It is a child of the first request that is recorded. The others and the batch have links to each other.

        Args:
            spans: of the requests that are recorded.
            size: the number of all requests.
        """
        first, *others = spans
        links = [Link(other.get_span_context()) for other in others]
        with self.span(
            f"batch {lane}",
            set_span_in_context(first),
            attributes={"booking.lane": lane, "booking.batch.size": size},
            links=links,
        ) as span:
            for other in others:
                other.add_link(span.get_span_context())
            yield

    @contextlib.contextmanager
    def span(
        self,
        name: str,
        context: Context | None = None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: dict[str, Any] | None = None,
        links: Sequence[Link] = (),
    ) -> Iterator[Span]:
        """Make a span while the body runs. Of an exception it has the class, and never the text."""
        with self.tracer.start_as_current_span(
            name,
            context,
            kind,
            attributes,
            links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise


def traceparent_of(span: Span) -> str | None:
    """Return the trace context (W3C) of a span, as the propagator formats it for three times the cost.

    A provider that is disabled makes spans without one, unless they have a parent.
    """
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}" if context.is_valid else None


def continued(traceparents: Sequence[str]) -> Context:
    """Return a context with the parent that a `traceparent` names.

    An invalid or repeated header is ignored (W3C Trace Context).
    """
    return _propagator.extract({TRACEPARENT: traceparents[0]}, Context()) if len(traceparents) == 1 else Context()


def _traceparents(scope: Scope) -> list[str]:
    return [str(value, "latin-1") for name, value in scope["headers"] if name == b"traceparent"]


def _route(scope: Scope) -> str | None:
    route: str | None = getattr(scope.get("route"), "path_format", None)
    return route


def _error_type(status: int, code: str | None) -> str | None:
    if not status:
        return _DISCONNECTED
    return (code or str(status)) if status >= _FAILED else None


# Deliveries -----------------------------------------------------------------------------------------------------------


class TracedSender:
    """Makes a span of each attempt, and passes it to the receiver as `traceparent`.

    The parent is the trace context that was stored with the event, from the request in another process, perhaps hours
    ago. A share of the other events begin a trace here.
    """

    def __init__(self, sender: Sender, tracing: Tracing) -> None:
        self._sender = sender
        self._tracing = tracing

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
        fields = dict(headers)
        parent = fields.pop(TRACEPARENT, None)
        if not parent and not self._tracing.may_begin():
            return await self._sender.send(url, headers, body)
        event_type = fields[webhook_verify.EVENT_TYPE_HEADER]
        attributes = {
            "http.request.method": "POST",
            "booking.event.type": event_type,
            "booking.event.id": fields[webhook_verify.EVENT_ID_HEADER],
            "booking.attempt.id": fields[webhook_verify.DELIVERY_ID_HEADER],
        }
        context = continued([parent] if parent else [])
        with self._tracing.span(f"deliver {event_type}", context, kind=SpanKind.CLIENT, attributes=attributes) as span:
            traceparent = traceparent_of(span)
            sent = await self._sender.send(
                url, [*fields.items(), *([(TRACEPARENT, traceparent)] if traceparent else [])], body
            )
            if sent.status is not None:
                span.set_attribute("http.response.status_code", sent.status)
            if sent.error is not None:
                span.set_attribute("error.type", sent.error.value)
                span.set_status(StatusCode.ERROR)
        return sent

    async def close(self) -> None:
        await self._sender.close()
