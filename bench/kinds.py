"""The five kinds of entries: their descriptions, their measurement and their results.

A `Workload` is a rate under load, with a minimal ratio to its floor. A `Cost` is a time, with a maximal ratio to its
floor. A `Promise` is a figure with an absolute limit, for any machine. A `Curve` is a rate and its latencies at growing
levels, such as numbers of clients, without an aim. A `Matrix` is a table of ratios, each with the same limit on one
database.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from bench import measure
from bench.measure import Sample, Samples, Side, Spread, Timing
from bench.stage import Stage

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Workload:
    """Sides that are loaded one after the other: ours, the floor, then references. `aim` is the minimal ratio of ours
    to the floor.

    `build` starts the sides in the stack; it returns none if the entry cannot be measured in this run.
    """

    name: str
    measures: str
    floor: str
    aim: float
    build: Callable[[Stage, ExitStack], Sequence[Side]]

    @property
    def goal(self) -> str:
        return f"≥ {self.aim:g} ×"


@dataclass(frozen=True, slots=True)
class Contender:
    """A side of a cost: `take` measures it once, in the cost's unit."""

    name: str
    take: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Cost:
    """Contenders that are measured one after the other: ours, the floor, then references. `at_most` is the maximal
    ratio of ours to the floor.

    `times` is the number of takes in one round: short takes are repeated.
    """

    name: str
    measures: str
    floor: str
    unit: str
    at_most: float
    build: Callable[[Stage, ExitStack], Sequence[Contender]]
    times: int = 1

    @property
    def goal(self) -> str:
        return f"≤ {self.at_most:g} ×"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a promise, with its limit, if any."""

    name: str
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def goal(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return f"≥ {self.at_least:g}" if self.at_least is not None else ""

    def is_met(self, value: float) -> bool:
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True, slots=True)
class Reading:
    """A round of a promise: its figures by name, and its failures."""

    values: dict[str, float]
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Promise:
    """Figures with limits. `build` returns the function that takes one reading."""

    name: str
    measures: str
    figures: tuple[Figure, ...]
    build: Callable[[Stage, ExitStack], Callable[[Timing], Reading] | None]

    @property
    def goal(self) -> str:
        return ", ".join(f"{figure.name} {figure.goal}" for figure in self.figures if figure.goal)


Level = Callable[[int, ExitStack], Sequence[Side]]
"""Returns the sides at one level of a curve; resources of that level only are entered in the stack."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Sides that are loaded at growing levels. A quick run uses the `quick` levels."""

    name: str
    measures: str
    by: str
    levels: tuple[int, ...]
    quick: tuple[int, ...]
    build: Callable[[Stage, ExitStack], Level | None]
    is_plotted: bool = False
    has_reference: bool = False
    """The first side of a level is compared with the second."""

    @property
    def goal(self) -> str:
        return "the plot" if self.is_plotted else "a table"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A cell of a matrix: the ratio of a disturbed time to its reference, and the times."""

    value: float
    quiet_ms: float
    reference_ms: float
    disturbed_ms: float


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a matrix: its cells by column, and its failures."""

    name: str
    cells: dict[str, Ratio]
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Takes:
    """The rows of a matrix: for each side their names, and the function that measures one row."""

    sides: dict[str, Sequence[str]]
    take: Callable[[str, str], Row]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows and columns of ratios for each side; `at_most` is the limit of each side's ratios.

    It takes long, so it only runs when it is named.
    """

    name: str
    measures: str
    columns: tuple[str, ...]
    at_most: dict[str, float]
    build: Callable[[Stage, ExitStack], Takes | None]

    @property
    def goal(self) -> str:
        return ", ".join(f"≤ {limit:g} × {side}" for side, limit in self.at_most.items())


Entry = Workload | Cost | Promise | Curve | Matrix


# Results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rated:
    """The result of a workload: the samples of its sides, ours first if the service took part."""

    entry: Workload
    samples: Samples
    failures: list[str]
    doubts: list[str]
    with_service: bool

    @property
    def ratio(self) -> Spread | None:
        """Return the ratio of ours to the floor; None if only floors ran."""
        if not self.with_service:
            return None
        ours, floor, *_ = self.samples.values()
        return measure.ratios(ours, floor)


@dataclass(frozen=True, slots=True)
class Costed:
    """The result of a cost: the takes of each contender, ours first."""

    entry: Cost
    taken: dict[str, list[float]]
    failures: list[str]
    doubts: list[str]

    @property
    def ratio(self) -> Spread:
        """Return the ratio of ours to the floor, take by take."""
        ours, floor, *_ = self.taken.values()
        return Spread.of([a / b for a, b in zip(ours, floor, strict=True)])


@dataclass(frozen=True, slots=True)
class Kept:
    """The result of a promise: its figures over the rounds."""

    entry: Promise
    readings: dict[str, list[float]]
    failures: list[str]
    doubts: list[str]


@dataclass(frozen=True, slots=True)
class Curved:
    """The result of a curve: for each of its levels the samples of its sides."""

    entry: Curve
    levels: dict[int, Samples]
    failures: list[str]
    doubts: list[str]

    def ratio(self, level: int) -> Spread | None:
        """Return the ratio of the first side to its reference at a level; None if it has no reference."""
        if not self.entry.has_reference:
            return None
        ours, reference, *_ = self.levels[level].values()
        return measure.ratios(ours, reference)


@dataclass(frozen=True, slots=True)
class Mapped:
    """The result of a matrix: its rows for each side."""

    entry: Matrix
    sides: dict[str, list[Row]]
    failures: list[str]
    doubts: list[str]

    def is_met(self, side: str, row: Row) -> bool:
        """Return whether every cell of a row is within its limit, and the row has no failure."""
        return not row.failures and all(cell.value <= self.entry.at_most[side] for cell in row.cells.values())


Outcome = Rated | Costed | Kept | Curved | Mapped


def measured(entry: Entry, stage: Stage, rounds: int, timing: Timing, progress: Progress) -> Outcome | None:
    """Start the sides of the entry, measure it, and stop them; return None if it cannot be measured in this run."""
    with ExitStack() as stack:
        match entry:
            case Workload():
                return _rated(entry, stage, stack, rounds, timing, progress)
            case Cost():
                return _costed(entry, stage, stack, rounds, progress)
            case Promise():
                return _kept(entry, stage, stack, rounds, timing, progress)
            case Curve():
                return _curved(entry, stage, stack, rounds, timing, progress)
            case Matrix():
                return _mapped(entry, stage, stack, progress)


def _rated(
    entry: Workload, stage: Stage, stack: ExitStack, rounds: int, timing: Timing, progress: Progress
) -> Rated | None:
    sides = entry.build(stage, stack)
    if not sides:
        return None
    samples = measure.alternate(sides, rounds, timing, progress)
    failures, doubts = measure.failures(sides, samples), measure.doubts(samples)
    return Rated(entry, samples, failures, doubts, stage.with_service)


def _costed(entry: Cost, stage: Stage, stack: ExitStack, rounds: int, progress: Progress) -> Costed | None:
    contenders = entry.build(stage, stack)
    if len(contenders) < 2:
        return None
    for contender in contenders:
        contender.take()  # the first read comes from the disk, or needs a compilation
    taken: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    times = rounds * (1 if stage.quick else entry.times)
    neighbours = measure.Neighbours()
    for number in range(times):
        progress(f"take {number + 1} of {times}")
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            taken[contender.name].append(contender.take())
    return Costed(entry, taken, [], neighbours.doubts())


def _kept(
    entry: Promise, stage: Stage, stack: ExitStack, rounds: int, timing: Timing, progress: Progress
) -> Kept | None:
    take = entry.build(stage, stack)
    if take is None:
        return None
    readings: dict[str, list[float]] = {figure.name: [] for figure in entry.figures}
    failures: list[str] = []
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        reading = take(timing)
        failures += reading.failures
        for name, value in reading.values.items():
            readings[name].append(value)
    return Kept(entry, readings, list(dict.fromkeys(failures)), [])


def _curved(
    entry: Curve, stage: Stage, stack: ExitStack, rounds: int, timing: Timing, progress: Progress
) -> Curved | None:
    sides_at = entry.build(stage, stack)
    if sides_at is None:
        return None
    levels: dict[int, Samples] = {}
    failures: list[str] = []
    doubts: list[str] = []
    for level in entry.quick if stage.quick else entry.levels:
        with ExitStack() as here:
            progress(f"{level:,} {entry.by}: starting")
            sides = sides_at(level, here)
            samples = measure.alternate(
                sides, max(1, rounds // 2), timing, partial(_progress_of, progress, entry, level)
            )
        levels[level] = samples
        failures += measure.failures(sides, samples)
        doubts += measure.doubts(samples)
    return Curved(entry, levels, list(dict.fromkeys(failures)), doubts[:1])


def _mapped(entry: Matrix, stage: Stage, stack: ExitStack, progress: Progress) -> Mapped | None:
    takes = entry.build(stage, stack)
    if takes is None:
        return None
    sides: dict[str, list[Row]] = {side: [] for side in takes.sides}
    neighbours = measure.Neighbours()
    for side, names in takes.sides.items():
        for number, name in enumerate(names):
            progress(f"{side}, {number + 1} of {len(names)}: {name}")
            sides[side].append(_row(takes, side, name))
    return Mapped(entry, sides, [], neighbours.doubts())


def _row(takes: Takes, side: str, name: str) -> Row:
    """Return a row; if it could not be measured, it has the reason, and the other rows are measured."""
    try:
        return takes.take(side, name)
    except Exception as error:
        return Row(name, {}, (f"not measured: {type(error).__name__}: {error!s:.200}",))


def _progress_of(progress: Progress, entry: Curve, level: int, what: str) -> None:
    progress(f"{level:,} {entry.by}, {what}")


def typical(samples: Sequence[Sample], name: str) -> float:
    """Return the median of a figure over the samples."""
    return Spread.of([getattr(sample, name) for sample in samples]).median
