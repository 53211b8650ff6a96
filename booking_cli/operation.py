"""One verb of the core, for an operator's command: in a transaction of its own, for whoever owns what it changes."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from booking_cli import storage
from booking_cli.context import Cli

if TYPE_CHECKING:
    from booking_core.caller import Actor, Organization
    from booking_core.db.engine import Tx
    from booking_core.db.writes import Writes

Verb = Callable[["Tx", "Actor", "Writes"], Any]


def act(cli: Cli, owner: "Callable[[Tx], Organization]", verb: Verb) -> Any:
    """What the verb gives, done for that organization; JSON is read.

    Raises:
        BookingError: whatever the verb refuses with; nothing is changed then.
    """
    return _act(cli, lambda tx: [owner(tx)], verb)


def act_on(cli: Cli, verb: Verb) -> Any:
    """The same for a thing that is named by its id alone: for the organization that has it.

    Raises:
        NotFound: none has it.
        BookingError: whatever the verb refuses with.
    """
    from booking_core import organizations

    return _act(cli, organizations.find, verb)


def _act(cli: Cli, owners: Any, verb: Verb) -> Any:
    installation = storage.installation(storage.settings())
    with storage.database(cli) as database:
        from booking_core.caller import Actor
        from booking_core.db.writes import Writes
        from booking_core.errors import NotFound

        def work(tx: "Tx") -> Any:
            for organization in owners(tx):
                actor, pending = Actor(installation=installation, organization=organization, at=tx.now()), Writes()
                try:
                    shown = verb(tx, actor, pending)
                except NotFound:
                    continue  # another organization's; nothing was collected
                tx.write(pending)
                return shown
            raise NotFound("There is no such thing; it is named by its id.")

        shown = database.write(work)
    return json.loads(shown) if isinstance(shown, bytes) else shown
