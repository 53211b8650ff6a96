"""The four kinds of entries: their descriptions, their measurement and their results.

A `Workload` is a rate under load, with a minimal ratio to its floor. A `Cost` is a time, with a maximal ratio to its
floor. A `Promise` is a figure with an absolute limit, for any machine. A `Curve` is a rate and its latencies at growing
levels, such as numbers of clients, without an aim.
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

    `build` starts the sides in the stack.
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
    build: Callable[[Stage, ExitStack], Callable[[Timing], Reading]]

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
    build: Callable[[Stage, ExitStack], Level]
    has_reference: bool = False
    """The first side of a level is compared with the second."""

    @property
    def goal(self) -> str:
        return "the plot"


Entry = Workload | Cost | Promise | Curve


# Results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rated:
    """The result of a workload: the samples of its sides, ours first."""

    entry: Workload
    samples: Samples
    failures: list[str]
    doubts: list[str]

    @property
    def ratio(self) -> Spread:
        """Return the ratio of ours to the floor, round by round."""
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


Outcome = Rated | Costed | Kept | Curved


def measured(entry: Entry, stage: Stage, rounds: int, timing: Timing, progress: Progress) -> Outcome:
    """Start the sides of the entry, measure it, and stop them."""
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


def _rated(entry: Workload, stage: Stage, stack: ExitStack, rounds: int, timing: Timing, progress: Progress) -> Rated:
    sides = entry.build(stage, stack)
    samples = measure.alternate(sides, rounds, timing, progress)
    failures, doubts = measure.failures(sides, samples), measure.doubts(samples)
    return Rated(entry, samples, failures, doubts)


def _costed(entry: Cost, stage: Stage, stack: ExitStack, rounds: int, progress: Progress) -> Costed:
    contenders = entry.build(stage, stack)
    for contender in contenders:
        contender.take()  # the first read comes from the disk, or needs a compilation
    taken: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    times = rounds * (1 if stage.quick else entry.times)
    meter = measure.Meter(None, None)
    for number in range(times):
        progress(f"take {number + 1} of {times}")
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            taken[contender.name].append(contender.take())
    return Costed(entry, taken, [], measure.cost_doubts(meter))


def _kept(entry: Promise, stage: Stage, stack: ExitStack, rounds: int, timing: Timing, progress: Progress) -> Kept:
    take = entry.build(stage, stack)
    readings: dict[str, list[float]] = {figure.name: [] for figure in entry.figures}
    failures: list[str] = []
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        reading = take(timing)
        failures += reading.failures
        for name, value in reading.values.items():
            readings[name].append(value)
    return Kept(entry, readings, list(dict.fromkeys(failures)), [])


def _curved(entry: Curve, stage: Stage, stack: ExitStack, rounds: int, timing: Timing, progress: Progress) -> Curved:
    sides_at = entry.build(stage, stack)
    levels: dict[int, Samples] = {}
    failures: list[str] = []
    doubts: list[str] = []
    for level in entry.quick if stage.quick else entry.levels:
        with ExitStack() as here:
            progress(f"{level:,} {entry.by}: starting")
            sides = sides_at(level, here)
            told = partial(_progress_of, progress, entry, level)
            samples = measure.alternate(sides, max(1, rounds // 2), timing, told)
        levels[level] = samples
        failures += measure.failures(sides, samples)
        doubts += measure.doubts(samples)
    return Curved(entry, levels, list(dict.fromkeys(failures)), doubts[:1])


def _progress_of(progress: Progress, entry: Curve, level: int, what: str) -> None:
    progress(f"{level:,} {entry.by}, {what}")


def typical(samples: Sequence[Sample], name: str) -> float:
    """Return the median of a figure over the samples."""
    return Spread.of([getattr(sample, name) for sample in samples]).median
