"""The operations of an organization while another one misbehaves, at full size.

Tests count turns (`tests/isolation/README.md`); here are the latencies, which depend on the machine.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.isolation.misbehaviours import MISBEHAVIOURS, Misbehaviour
from bench.isolation.operations import Measured
from bench.isolation.scene import Scene
from bench.measure import Entry, Reading, Sides, Timing, entry
from bench.stage import Stage
from booking_core.db import migrate

ROUNDS = 60


def beside(misbehaviour: Misbehaviour, backend: str) -> Entry:
    """Make the entry of a misbehaviour on one database."""
    name = f"isolation-{misbehaviour.name}-{backend}"

    @entry(name, f"an organization on {backend} while {misbehaviour.does}", rounds=1)
    def build(stage: Stage, stack: ExitStack) -> Sides:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-isolation-")))
        is_sqlite, operations = backend == "sqlite", misbehaviour.measured_on(backend)
        url = f"sqlite:///{folder}/booking.db" if is_sqlite else stage.postgres.create_database(name)
        migrate.upgrade(url)
        settings = misbehaviour.settings
        scene = stack.enter_context(Scene(url, folder, cancellations=ROUNDS * 2, settings=settings))
        misbehaviour.prepare(scene)
        scene.start()

        def quiet(_: Timing) -> Reading:
            return _reading(scene.neighbour.measure(operations, rounds=ROUNDS))

        def offended(timing: Timing) -> Reading:
            with misbehaviour.run(scene):
                return quiet(timing)

        return {"quiet": quiet, "beside it": offended}

    return build


def _reading(measured: Measured) -> Reading:
    medians = {f"{operation} ms": median(seconds) * 1e3 for operation, seconds in measured.seconds.items()}
    return Reading(medians, measured.failures)


ENTRIES = tuple(beside(misbehaviour, backend) for misbehaviour in MISBEHAVIOURS for backend in ("postgresql", "sqlite"))
