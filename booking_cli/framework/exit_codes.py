"""What the exit code of `booking` says, for scripts to branch on. None is 126 or 127, which belong to the shell."""

from collections.abc import Mapping
from enum import IntEnum


class ExitCode(IntEnum):
    """One for each kind of outcome."""

    OK = 0
    """Done; also when the reader of a pipe went away, and when a list is empty."""
    FAILED = 1
    """Something unexpected, or a question answered with no, or a check that found something broken."""
    USAGE = 2
    """The command line, a setting or a local file is wrong, or a confirmation is needed and nobody is there."""
    NETWORK = 3
    """The service could not be reached; trying again may help."""
    AUTH = 4
    """Not logged in, or the API key opens nothing (401)."""
    FORBIDDEN = 5
    """The key may not do that (403)."""
    NOT_FOUND = 6
    """There is no such thing (404)."""
    CONFLICT = 7
    """Not in the current state (409)."""
    INVALID = 8
    """The request is wrong (400, 422)."""
    RATE_LIMITED = 9
    """Too many requests (429)."""
    SERVER = 10
    """The service or its database failed (5xx)."""
    SIGNATURE = 11
    """A signature did not verify."""
    PARTIAL = 12
    """Some of it was done."""
    NEEDS_PERSON = 13
    """Nothing is broken, and something waits for a person: `doctor` says what."""
    INTERRUPTED = 130
    """Ctrl-C."""


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "done; also a closed pipe, or an empty list",
    ExitCode.FAILED: "unexpected, or declined, or a check found something broken",
    ExitCode.USAGE: "the command line, a setting or a local file is wrong",
    ExitCode.NETWORK: "the service could not be reached",
    ExitCode.AUTH: "not logged in, or the key opens nothing (401)",
    ExitCode.FORBIDDEN: "the key may not do that (403)",
    ExitCode.NOT_FOUND: "no such thing (404)",
    ExitCode.CONFLICT: "not in the current state (409)",
    ExitCode.INVALID: "the request is wrong (400, 422)",
    ExitCode.RATE_LIMITED: "too many requests (429)",
    ExitCode.SERVER: "the service or its database failed (5xx), or its answer cannot be read",
    ExitCode.SIGNATURE: "a signature did not verify",
    ExitCode.PARTIAL: "partly done",
    ExitCode.NEEDS_PERSON: "nothing is broken, but something waits for a person (doctor)",
    ExitCode.INTERRUPTED: "interrupted",
}
"""One line for each, as the help and the README show it."""

BY_CODE: Mapping[str, ExitCode] = {
    "validation_failed": ExitCode.INVALID,
    "idempotency_key_required": ExitCode.INVALID,
    "idempotency_key_reused": ExitCode.INVALID,
    "payload_too_large": ExitCode.INVALID,
    "unsupported_media_type": ExitCode.INVALID,
    "headers_too_large": ExitCode.INVALID,
    "method_not_allowed": ExitCode.INVALID,
    "api_key_missing": ExitCode.AUTH,
    "api_key_invalid": ExitCode.AUTH,
    "api_key_revoked": ExitCode.AUTH,
    "api_key_expired": ExitCode.AUTH,
    "app_not_enabled": ExitCode.FORBIDDEN,
    "plan_upgrade_required": ExitCode.FORBIDDEN,
    "insufficient_scope": ExitCode.FORBIDDEN,
    "not_found": ExitCode.NOT_FOUND,
    "insufficient_capacity": ExitCode.CONFLICT,
    "conflict": ExitCode.CONFLICT,
    "idempotency_in_progress": ExitCode.CONFLICT,
    "rate_limited": ExitCode.RATE_LIMITED,
    "internal_error": ExitCode.SERVER,
    "service_unavailable": ExitCode.SERVER,
}
"""The exit code for each error code of the API (section 7), whether it came over HTTP or from the library here."""


_BY_STATUS: Mapping[int, ExitCode] = {
    401: ExitCode.AUTH,
    403: ExitCode.FORBIDDEN,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    429: ExitCode.RATE_LIMITED,
}


def of_status(status: int) -> ExitCode:
    """The exit code for an HTTP status whose code is not known here."""
    if status >= 500:
        return ExitCode.SERVER
    return _BY_STATUS.get(status, ExitCode.INVALID if 400 <= status < 500 else ExitCode.FAILED)
