"""The `booking` command: the service, its organizations, keys and catalogues at a shell.

A module for each command group, loaded when the group is used: `main` finds it, `command` says how one is declared,
`context` is what every command is given, `render` is the only writer to the terminal. An operator's command comes to
the database through `storage`, a client's to the service through `remote`.
"""
