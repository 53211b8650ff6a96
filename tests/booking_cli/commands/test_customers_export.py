"""`booking customers export` writes JSON, and says which customer it does not find."""

import os

from support import databases
from support.commands import Booking

ID = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"


def test_a_customer_is_exported_as_json_without_an_option(fjord: Booking) -> None:
    add = "INSERT INTO customers SELECT id, :id, 'a@b.example', 'a@b.example', 'Ada', NULL, '[]', 0, 1, 1, NULL"
    databases.run(os.environ["BOOKING_DATABASE_URL"], f"{add.replace(':id', repr(ID))} FROM organizations")
    exported = fjord("customers", "export", ID)
    assert exported.code == 0, exported.err
    assert (exported.json["customer"]["email"], exported.json["bookings"]) == ("a@b.example", [])
    assert fjord("customers", "export", ID.replace("0190", "0191")).code == 6
    assert fjord("customers", "export", "no-id").code in (2, 6)
