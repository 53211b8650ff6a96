"""The service measured beside its floors: the same work with everything taken away that could be taken away.

`python -m bench` runs it; README.md says how to read what it prints. Nothing here is imported by the service.
"""
