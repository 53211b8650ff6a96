"""The table of misbehaviours. To add one, add an entry to `MISBEHAVIOURS` in the module of the misused part."""

from isolation import of_deliveries, of_integrations, of_jobs, of_reads, of_writes
from isolation.measuring import Misbehaviour

MISBEHAVIOURS: tuple[Misbehaviour, ...] = (
    *of_reads.MISBEHAVIOURS,
    *of_writes.MISBEHAVIOURS,
    *of_deliveries.MISBEHAVIOURS,
    *of_jobs.MISBEHAVIOURS,
    *of_integrations.MISBEHAVIOURS,
)
BY_NAME = {each.name: each for each in MISBEHAVIOURS}
