"""The language spoken over HTTP: resources, requests, codes and limits, shared by server and SDK.

Reading is open (unknown fields are kept, unknown enum values pass as strings), writing is strict. Nothing here knows
of storage, of HTTP libraries or of the server.
"""
