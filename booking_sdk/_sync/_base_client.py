# Generated from booking_sdk/_base_client.py by `make sync-client`. Do not edit.
"""The part of the sync client that executes a call: `_flow` decides each step, and this class performs it."""

from typing import TypeVar

from booking_core.models.suggestions import Suggesting
from booking_sdk._clock import ClientClock
from booking_sdk._config import Config
from booking_sdk._flow import Send, Sleep, Steps, flow
from booking_sdk._parse import Parse
from booking_sdk._retries import AttemptResult
from booking_sdk._sync._transport import Transport
from booking_sdk._traceback_scrubbing import clear_frames
from booking_sdk.request import RequestSpec

T = TypeVar("T")


class APIClient(Suggesting):
    """The base class of the client. Resources, pages and feeds depend on it."""

    _config: Config
    _clock: ClientClock
    _transport: Transport

    def _execute(self, spec: RequestSpec, parse: Parse[T]) -> T:
        """Send a request, with its retries, and return the parsed response."""
        steps: Steps[T] = flow(spec, parse, self._config, self._clock)
        result: AttemptResult | None = None
        try:
            while True:
                step = steps.send(result)
                try:
                    result = self._perform(step)
                except BaseException as error:  # noqa: BLE001 - the flow raises it again and adds the call's details
                    steps.throw(error)
        except StopIteration as stop:
            value: T = stop.value
            return value
        except BaseException as error:
            result = None
            clear_frames(error)
            raise

    def _perform(self, step: Send | Sleep) -> AttemptResult | None:
        if isinstance(step, Send):
            return self._transport.send(step)
        self._clock.sleep(step.seconds)
        return None
