"""The SDK against the service itself, in process, on both databases."""

import asyncio

import pytest
from sdk_support.contract import Contract
from sdk_support.stages import ServiceStage
from starlette.testclient import TestClient
from support.world import World


class TestTheService(Contract):
    @pytest.fixture
    def stage(
        self,
        session_app: TestClient,
        world: World,
        flavour: str,
        runner: asyncio.Runner,
        monkeypatch: pytest.MonkeyPatch,
    ) -> ServiceStage:
        # Whether an address is public is asked of DNS, which a test has no business with.
        service = session_app.app.state.service  # type: ignore[attr-defined]
        monkeypatch.setattr(service, "is_public_address", lambda url: True)
        return ServiceStage(session_app, world, runner if flavour == "async" else None)
