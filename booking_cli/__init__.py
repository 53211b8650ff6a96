"""The `booking` command.

`main` runs a command. `commands` has a module for each command group, imported when the group is used; `framework` the
declaration of commands, output, errors and options; `client` the access to the HTTP API through the SDK; `operator` the
access to the database. `client` and `operator` do not import each other.
"""
