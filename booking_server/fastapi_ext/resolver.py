"""Resolve the dependencies of a path operation by a plan that is made once for each route."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant
from fastapi.security import SecurityScopes
from pydantic import BaseModel

from booking_core.base.errors import BookingError, Malformed
from booking_core.models.errors import ErrorDetail
from booking_server.fastapi_ext.requests import BodyContext, RequestBody, details_of, malformed, query_values, validate

Declaration = Dependant
"""FastAPI's declaration of a path operation or of a dependency."""
Call = Callable[..., Any]
Faults = list[ErrorDetail]
"""The faults of a request that were found so far: it is refused with all of them (decision R3)."""
Extract = Callable[[Request], Any]
"""Reads the value of a parameter from the request; None when it is absent."""
_KNOWN_MAX = 64
_KNOWN_BYTES_MAX = 256
"""The query texts whose values a route remembers, and how long they may be: clients ask for the same lists again and
again, and reading twelve parameters costs half as much as the look-up of their key."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A path parameter or a header."""

    name: str
    declared: Any
    """FastAPI's field."""
    extract: Extract

    def read(self, request: Request, faults: Faults) -> Any:
        """Return the validated value, and add its faults."""
        try:
            value = self.extract(request)
        except Malformed as error:
            faults += error.details
            return None
        if value is None and not self.declared.field_info.is_required():
            return self.declared.get_default()
        result, problems = self.declared.validate(value, {}, loc=(self.declared.alias,))
        faults += details_of(problems)
        return result


@dataclass(frozen=True, slots=True)
class QueryModel:
    """A query model. Its values depend on the text of the query alone and cannot be changed, so they are remembered."""

    name: str
    declared: Any
    """FastAPI's field."""
    aliases: Sequence[str]
    cache: dict[bytes, Any] = field(default_factory=dict)

    def read(self, request: Request, faults: Faults) -> Any:
        """Return the validated values, and add the faults of each."""
        text = request.scope["query_string"]
        if (remembered := self.cache.get(text)) is not None:
            return remembered
        model, wrong = self._read(text)
        faults += wrong
        if not wrong and len(text) <= _KNOWN_BYTES_MAX:
            if len(self.cache) >= _KNOWN_MAX:
                self.cache.clear()
            self.cache[text] = model
        return model

    def _read(self, text: bytes) -> tuple[Any, Faults]:
        values, unread = query_values(text, self.aliases)
        model, problems = self.declared.validate(values, {}, loc=())
        names = {fault.field for fault in unread}  # to the model they are absent
        return model, [*unread, *(fault for fault in details_of(problems) if fault.field not in names)]


@dataclass(frozen=True, slots=True)
class BodyModel:
    """The model of a body: JSON, parsed in pydantic's strict JSON mode.

    In Python mode, as FastAPI would call it, a strict model would refuse the text of an enum or of a timestamp.
    """

    name: str
    model: type[BaseModel]
    is_optional: bool
    """An empty body is an empty object."""
    context: BodyContext | None

    def read(self, body: RequestBody, request: Request) -> Any:
        """Return the body as its model.

        Raises:
            BookingError: it could not be read, or is not valid.
        """
        body.json_object(is_optional=self.is_optional)
        return validate(self.model, body.data, self.context and self.context.read(request))


@dataclass(frozen=True, slots=True)
class CallStep:
    """A call: a dependency, or the path operation itself."""

    call: Call
    results: Sequence[tuple[str, int]]
    """Parameters that are the results of earlier steps, by their position."""
    constants: Mapping[str, Any]
    request_name: str | None
    parameters: Sequence[Parameter | QueryModel]

    def arguments(self, request: Request, results: Sequence[Any], faults: Faults) -> dict[str, Any]:
        """Return the arguments of the call."""
        values = dict(self.constants)
        for name, position in self.results:
            values[name] = results[position]
        if self.request_name:
            values[self.request_name] = request
        for parameter in self.parameters:
            values[parameter.name] = parameter.read(request, faults)
        return values


class CallPlan:
    """The calls that answer a request, in FastAPI's order: dependencies, path, query, headers, body, operation.

    Args:
        provided: dependencies whose results `run` gets; they are not called.
        overrides: FastAPI's `app.dependency_overrides`.
    """

    def __init__(self, dependant: Dependant, provided: Collection[Call], overrides: Mapping[Call, Call]) -> None:
        self._provided = provided
        self._overrides = overrides
        self._steps: list[CallStep] = []
        self._positions: dict[tuple[Any, tuple[str, ...]], int] = {}
        _refuse_uncovered(dependant, is_operation=True)
        self._body = _body_model(dependant.body_params[0]) if dependant.body_params else None
        self._add(dependant)
        *self._dependencies, self._operation = self._steps

    def run(self, request: Request, body: Any, provided: Mapping[Call, Any]) -> Any:
        """Resolve the dependencies and call the path operation, all of them plain functions, in this thread.

        Args:
            provided: the results of dependencies that are not called.

        Raises:
            Malformed: with each fault of the parameters and the body.
        """
        results: list[Any] = []
        with _collected_faults() as faults:
            for step in self._dependencies:
                if step.call in provided:
                    results.append(provided[step.call])
                    continue
                arguments = step.arguments(request, results, faults)
                results.append(None if faults else step.call(**arguments))
            values = self._arguments(request, body, results, faults)
        return self._operation.call(**values)

    async def resolve(self, request: Request, body: Any) -> Callable[[Mapping[Call, Any]], Any]:
        """Resolve the dependencies on the event loop, and return the path operation, to be called with the given
        values.

        Raises:
            Malformed: with each fault of the parameters and the body.
        """
        results: list[Any] = []
        with _collected_faults() as faults:
            for step in self._dependencies:
                if step.call in self._provided:
                    results.append(None)
                    continue
                arguments = step.arguments(request, results, faults)
                result = None if faults else step.call(**arguments)
                results.append(await result if inspect.isawaitable(result) else result)
            values = self._arguments(request, body, results, faults)
        later = [(name, self._dependencies[position].call) for name, position in self._operation.results]

        def operate(provided: Mapping[Call, Any]) -> Any:
            return self._operation.call(**(values | {name: provided[call] for name, call in later if call in provided}))

        return operate

    def _arguments(self, request: Request, body: Any, results: Sequence[Any], faults: Faults) -> dict[str, Any]:
        values = self._operation.arguments(request, results, faults)
        if self._body:
            values[self._body.name] = self._body.read(body, request)
        return values

    def _add(self, dependant: Dependant) -> int:
        """Add the steps of a call, its dependencies' steps first, and return its position."""
        results = [(sub.name, self._position(sub)) for sub in dependant.dependencies]
        constants = {}
        if dependant.security_scopes_param_name:
            constants[dependant.security_scopes_param_name] = SecurityScopes(list(_scopes(dependant)))
        assert dependant.call is not None
        self._steps.append(
            CallStep(
                dependant.call,
                [(name, position) for name, position in results if name is not None],
                constants,
                dependant.request_param_name,
                _parameters(dependant),
            )
        )
        return len(self._steps) - 1

    def _position(self, dependant: Dependant) -> int:
        """Return the position of a dependency, which is called once for all that use it with the same scopes."""
        assert dependant.call is not None
        if override := self._overrides.get(dependant.call):
            scopes = list(_scopes(dependant))
            path = dependant.path or ""
            dependant = get_dependant(path=path, call=override, name=dependant.name, parent_oauth_scopes=scopes)
        if dependant.call in self._provided:
            dependant = Dependant(call=dependant.call)
        else:
            _refuse_uncovered(dependant, is_operation=False)
        key = (dependant.call, _scopes(dependant) if dependant.security_scopes_param_name else ())
        if key not in self._positions:
            self._positions[key] = self._add(dependant)
        return self._positions[key]


@contextmanager
def _collected_faults() -> Iterator[Faults]:
    """Give the body a list for the faults of a request, and refuse the request at its end if there are some.

    Beside faults, a refusal that the body raises counts only for the faults that it names.
    """
    faults: Faults = []
    try:
        yield faults
    except BookingError as error:
        if not faults:
            raise
        faults += error.details if isinstance(error, Malformed) else ()
    if faults:
        raise malformed(faults)


def _refuse_uncovered(dependant: Dependant, *, is_operation: bool) -> None:
    """Refuse a declaration that a plan does not cover.

    Raises:
        TypeError: the path operation, or one of its dependencies, belongs on a plain `APIRouter`.
    """
    unsupported = (
        dependant.websocket_param_name,
        dependant.http_connection_param_name,
        dependant.response_param_name,
        dependant.background_tasks_param_name,
    )
    is_covered = (
        not any(unsupported)
        and not dependant.cookie_params
        and len(dependant.body_params) <= int(is_operation)
        and (is_operation or dependant.use_cache)
        and dependant.concurrency is None
        and not inspect.isgeneratorfunction(dependant.call)
        and not inspect.isasyncgenfunction(dependant.call)
        and len(dependant.query_params) <= 1
        and all(_model(field) and field.field_info.is_required() for field in dependant.query_params)
        and all(map(_model, dependant.body_params))
    )
    if not is_covered:
        raise TypeError(f"a plan does not cover the declaration of {dependant.call}: use a plain APIRouter for it")


def _scopes(dependant: Dependant) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(dependant.parent_oauth_scopes or ()), *(dependant.own_oauth_scopes or ())]))


def _parameters(dependant: Dependant) -> list[Parameter | QueryModel]:
    return [
        *(Parameter(f.name, f, _path(f.alias)) for f in dependant.path_params),
        *(QueryModel(f.name, f, _aliases(f)) for f in dependant.query_params),
        *(Parameter(f.name, f, _header(f.alias)) for f in dependant.header_params),
    ]


def _model(field: Any) -> type[BaseModel] | None:
    annotation = field.field_info.annotation
    return annotation if inspect.isclass(annotation) and issubclass(annotation, BaseModel) else None


def _body_model(field: Any) -> BodyModel:
    model = _model(field)
    assert model is not None
    context = next((mark for mark in field.field_info.metadata if isinstance(mark, BodyContext)), None)
    return BodyModel(field.name, model, not field.field_info.is_required(), context)


def _path(alias: str) -> Extract:
    return lambda request: request.path_params.get(alias)


def _header(alias: str) -> Extract:
    name = alias.lower().encode()

    def extract(request: Request) -> str | None:
        values = [value for header, value in request.scope["headers"] if header == name]
        if len(values) > 1:
            raise Malformed.at(alias, "is given twice", "repeated")
        return values[0].decode("latin-1") if values and values[0] else None

    return extract


def _aliases(field: Any) -> list[str]:
    model = _model(field)
    assert model is not None
    return [info.alias or name for name, info in model.model_fields.items()]
