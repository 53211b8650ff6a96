"""No organization slows another: each misbehaviour of the table, on both databases, at a reduced size."""

import pytest

from isolation.cells import MISBEHAVIOURS
from isolation.conftest import OpenScene
from isolation.measuring import Misbehaviour, Trial


@pytest.mark.parametrize("misbehaviour", MISBEHAVIOURS, ids=lambda each: each.name)
def test_the_neighbour_notices_nothing(misbehaviour: Misbehaviour, backend: str, open_scene: OpenScene) -> None:
    scene = open_scene(misbehaviour)
    verdict = Trial(scene, misbehaviour, backend).run()
    print(f"\n{misbehaviour.name} on {backend}, answered {dict(scene.answers)}", *verdict.cells, sep="\n  ")
    assert verdict.complaints == []
