"""The catalogue file: parse, validate, import and export. Only this package inserts experiences and departures."""

from booking_core.catalogue.transfer.batches import ImportTally
from booking_core.catalogue.transfer.changes import Counts
from booking_core.catalogue.transfer.document import InvalidCatalogue, Note, Problem, parse
from booking_core.catalogue.transfer.rules import Plan
from booking_core.catalogue.transfer.service import ImportSummary, export, import_in_batches, import_plan, validate
