"""A sender of deliveries that calls nobody, and a worker that has it."""

from collections.abc import Sequence
from typing import NamedTuple

from booking_core.base.settings import Settings
from booking_core.models.webhooks import AttemptError
from booking_server.adapters.webhook_client import Sent
from booking_server.worker.jobs.periodic import Job
from booking_server.worker.process import Worker
from support.world.world import SECRET, World

OK = Sent(200, "ok", None, 5)
FAILED = Sent(500, "no", AttemptError.HTTP_STATUS, 5)


class Request(NamedTuple):
    """A delivery as the worker has sent it."""

    url: str
    headers: dict[str, str]
    body: bytes


class FakeSender:
    """Keeps the requests of a worker, and answers with prepared results.

    Args:
        answers: the results of the first attempts.
        always: the result of each later attempt.
        url: of the receiver. Attempts at others succeed and are not kept, where tests share a database.
    """

    def __init__(self, *answers: Sent, always: Sent = OK, url: str | None = None) -> None:
        self.url = url
        self.requests: list[Request] = []
        self._answers = list(answers)
        self._always = always

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
        if self.url not in (None, url):
            return OK
        self.requests.append(Request(url, dict(headers), body))
        return self._answers.pop(0) if self._answers else self._always

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def worker_of(world: World, sender: FakeSender, jobs: Sequence[Job] = ()) -> Worker:
    """Return a worker of the organization's database, which sends with the sender."""
    settings = Settings(database_url=str(world.database.url), secret_key=SECRET)
    return Worker(settings, world.database, world.installation, sender, jobs)
