"""The catalogue file: parse, validate, import and export. Only this package inserts experiences and departures."""

from booking_core.catalogue.catalog.batches import ImportTally
from booking_core.catalogue.catalog.changes import Counts
from booking_core.catalogue.catalog.document import InvalidCatalogue, Note, Problem, parse
from booking_core.catalogue.catalog.rules import Plan
from booking_core.catalogue.catalog.service import (
    ImportSummary,
    export,
    import_document,
    import_in_batches,
    import_plan,
    validate,
)
