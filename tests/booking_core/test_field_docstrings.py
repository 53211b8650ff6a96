"""The docstrings of fields: descriptions of a schema that no start pays for."""

import subprocess
import sys
from typing import Annotated

import pytest
from pydantic import AliasChoices, Field, create_model
from pydantic.json_schema import SkipJsonSchema

from booking_core.models import docstrings
from booking_core.models.base import Request, Resource


class Guide(Resource):
    """A resource of this test."""

    name: str
    """The name, as guests
    read it."""
    phone: str
    since: Annotated[int, Field(description="The first season.")]
    """Not shown: the field has a description."""


class Captain(Guide):
    """A guide whose phone is described, and whose name is not."""

    name: str
    phone: str
    """The number on board."""


class Sailing(Request):
    """A request with two names for a field, and a field that the schema leaves out."""

    boat_id: Annotated[str, Field(validation_alias=AliasChoices("vessel_id", "boat_id"))]
    """The boat."""
    season: SkipJsonSchema[int] = 0
    """Not shown: the schema has no such field."""


def described(model: type[Resource | Request]) -> dict[str, str | None]:
    properties = model.model_json_schema()["properties"]
    return {name: schema.get("description") for name, schema in properties.items()}


def test_fields_are_described_by_their_docstrings() -> None:
    assert described(Guide) == {"name": "The name, as guests\nread it.", "phone": None, "since": "The first season."}
    assert described(Captain) == {"name": None, "phone": "The number on board.", "since": "The first season."}
    assert described(Sailing) == {"vessel_id": "The boat."}


def test_a_generated_model_inherits_the_descriptions_of_its_inherited_fields() -> None:
    model = create_model("Pilot", __base__=Captain, phone=(str, ...))
    assert docstrings.of_fields(model) == {}
    assert docstrings.of_fields(create_model("Mate", __base__=Captain)) == {"phone": "The number on board."}


@pytest.mark.exhaustive
def test_the_application_is_loaded_without_the_source_of_a_model() -> None:
    program = (
        "import inspect, fastapi\n"  # AnyIO, a dependency of FastAPI, reads its own
        "def refuse(*_): raise AssertionError('the start reads a source')\n"
        "inspect.getsource = inspect.getsourcelines = inspect.findsource = refuse\n"
        "from booking_server.app import describe\n"
        "describe()"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
