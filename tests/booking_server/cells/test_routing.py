"""The cell of a request is found by the name in its key or link."""

import pytest

from booking_server.cells.app import cell_named_by

TOKEN = "A" * 64


@pytest.mark.parametrize("page", ["", "/cancel", "/move", "/receipt", "/calendar.ics"])
@pytest.mark.parametrize("prefix", ["/manage/", "/gift-card/"])
def test_every_page_behind_a_link_names_the_cell_of_the_link(prefix: str, page: str) -> None:
    assert cell_named_by(f"{prefix}{TOKEN}-c2{page}", []) == "c2"
    assert cell_named_by(f"{prefix}{TOKEN}{page}", []) == ""


@pytest.mark.parametrize("path", ["/manage/", "/manage/x", "/gift-card/", f"/manage/{TOKEN}x"])
def test_a_path_that_is_no_link_names_no_cell(path: str) -> None:
    assert cell_named_by(path, []) == ""


def test_the_address_of_webhooks_of_stripe_names_its_cell() -> None:
    organization = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"
    path = f"/stripe/webhooks/{organization}"
    assert cell_named_by(path, []) == ""
    assert cell_named_by(f"{path}-c2", []) == "c2"
    for other in ("/stripe/webhooks/", f"{path}/more", f"{path}-cell"):
        assert cell_named_by(other, []) == ""
