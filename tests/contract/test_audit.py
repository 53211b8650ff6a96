"""What API keys do to webhook endpoints is kept in the audit trail."""

import logging

import pytest
from support.api.api import Api
from support.world.hooks import Hooks

from booking_core import webhooks
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.records import audit


def test_each_change_of_an_endpoint_has_an_entry_and_a_line(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    hooks = Hooks(api.world)
    endpoint = hooks.endpoint()
    with caplog.at_level(logging.INFO, "booking.audit"):
        assert api.call("PATCH", f"/webhooks/{endpoint}", json={"description": "canary"}).status_code == 200
        assert api.post(f"/webhooks/{endpoint}/rotate-secret").status_code == 200
        assert api.post(f"/webhooks/{endpoint}/test").status_code == 202
        assert api.call("PATCH", f"/webhooks/{endpoint}", json={"url": "http://canary.example"}).status_code == 400
        assert api.call("DELETE", f"/webhooks/{endpoint}").status_code == 204
    entries = api.world.database.read(lambda tx: audit.find(tx, organization_id=api.world.org, limit=10))
    actions = ["webhooks.change", "webhooks.rotate_secret", "webhooks.test", "webhooks.delete"]
    assert sorted(entry["action"] for entry in entries) == sorted(actions)
    assert {(entry["actor_kind"], entry["actor"]) for entry in entries} == {("api_key", api.key[:12])}
    assert {entry["objects"]["endpoint"][0] for entry in entries} == {endpoint}
    lines = [vars(record)["action"] for record in caplog.records if record.name == "booking.audit"]
    assert lines == actions
    assert "canary" not in f"{entries}{caplog.text}"


def test_a_change_by_a_statement_alone_has_an_entry(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Hooks(api.world).endpoint()
    rename = Statement(tables.webhook_endpoints.update().values(description="changed"))

    def change(tx: Tx, *_: object, **__: object) -> dict[str, str]:
        tx.run(rename)
        return {"id": endpoint}

    monkeypatch.setattr(webhooks, "change", change)
    assert api.call("PATCH", f"/webhooks/{endpoint}", json={"description": "changed"}).status_code == 200
    entries = api.world.database.read(lambda tx: audit.find(tx, organization_id=api.world.org, limit=10))
    assert [entry["action"] for entry in entries] == ["webhooks.change"]
