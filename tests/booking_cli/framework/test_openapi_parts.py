"""The generated parts of the OpenAPI document."""

import json

from scripts import command_data


def test_the_parts_belong_to_the_document() -> None:
    document = json.loads((command_data.ROOT / "openapi.json").read_text(encoding="utf-8"))
    drifted = "openapi_parts.json has drifted: run `make openapi` and commit it"
    assert command_data.TARGET.read_text(encoding="utf-8") == command_data.rendered(document), drifted
