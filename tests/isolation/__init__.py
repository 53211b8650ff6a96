"""The isolation of organizations: an offender misbehaves while the operations of its neighbour are measured.

`cells` has the table of misbehaviours, `operations` what the neighbour does, `measuring` how a cell is judged, `world`
the service with both organizations. The reasons are in decisions/0027.
"""
