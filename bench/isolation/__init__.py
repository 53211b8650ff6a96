"""The isolation of organizations: an offender misbehaves beside the operations of its neighbour.

`misbehaviours` has the table, `operations` the operations of the neighbour, and `scene` the service with both
organizations. The reasons are in decisions/0027.
"""
