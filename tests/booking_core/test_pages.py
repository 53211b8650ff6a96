"""The envelope of lists."""

import inspect

import pytest

from booking_core.models.base import Resource
from booking_core.models.pages import Page


class Guide(Resource):
    """A resource of this test."""

    name: str


def test_a_page_of_a_resource_is_made_without_a_search_for_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: object) -> None:
        raise AssertionError("every start would search all modules for it")

    monkeypatch.setattr(inspect, "getmodule", search)
    fields = Page[Guide].model_fields
    assert [field.description for field in fields.values()] == [each.description for each in Page.model_fields.values()]
    assert all(field.description for field in fields.values())
