"""The isolation of organizations: an offender misbehaves while the operations of its neighbour are measured.

`cells` has the table of misbehaviours, `operations` the operations of the neighbour, `measuring` the judgement of a
cell, and `world` the service with both organizations. The reasons are in decisions/0027.
"""
