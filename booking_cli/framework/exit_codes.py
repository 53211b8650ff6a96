"""The exit codes of `booking`. 126 and 127 are not used, since they belong to the shell."""

from collections.abc import Mapping
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes, explained in MEANINGS."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NETWORK = 3
    AUTH = 4
    FORBIDDEN = 5
    NOT_FOUND = 6
    CONFLICT = 7
    INVALID = 8
    RATE_LIMITED = 9
    SERVER = 10
    SIGNATURE = 11
    PARTIAL = 12
    NEEDS_PERSON = 13
    INTERRUPTED = 130


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "success; also for a closed pipe and an empty list",
    ExitCode.FAILED: "unexpected error, declined question, or a failed check",
    ExitCode.USAGE: "invalid command line, setting or local file",
    ExitCode.NETWORK: "the service cannot be reached",
    ExitCode.AUTH: "not logged in, or the API key is not valid (401)",
    ExitCode.FORBIDDEN: "the API key lacks a permission (403)",
    ExitCode.NOT_FOUND: "not found (404)",
    ExitCode.CONFLICT: "conflict with the current state (409)",
    ExitCode.INVALID: "invalid request (400, 422)",
    ExitCode.RATE_LIMITED: "too many requests (429)",
    ExitCode.SERVER: "the service or its database failed (5xx), or the response is unreadable",
    ExitCode.SIGNATURE: "the signature is not valid",
    ExitCode.PARTIAL: "partial success",
    ExitCode.NEEDS_PERSON: "doctor found nothing broken, but work that waits for a person",
    ExitCode.INTERRUPTED: "interrupted",
}
"""The meaning of each exit code, for the help and the README."""

_CODES: Mapping[ExitCode, str] = {
    ExitCode.INVALID: "validation_failed idempotency_key_required idempotency_key_reused payload_too_large"
    " unsupported_media_type headers_too_large method_not_allowed",
    ExitCode.AUTH: "api_key_missing api_key_invalid api_key_revoked api_key_expired",
    ExitCode.FORBIDDEN: "app_not_enabled plan_upgrade_required insufficient_scope",
    ExitCode.NOT_FOUND: "not_found",
    ExitCode.CONFLICT: "insufficient_capacity conflict idempotency_in_progress",
    ExitCode.RATE_LIMITED: "rate_limited",
    ExitCode.SERVER: "internal_error service_unavailable",
}
BY_CODE: Mapping[str, ExitCode] = {code: exit_code for exit_code, codes in _CODES.items() for code in codes.split()}
"""The exit code for each error code of the API (section 7), raised by the SDK or by booking_core."""


_BY_STATUS: Mapping[int, ExitCode] = {
    401: ExitCode.AUTH,
    403: ExitCode.FORBIDDEN,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    429: ExitCode.RATE_LIMITED,
}


def of_status(status: int) -> ExitCode:
    """Return the exit code for an HTTP status with an unknown error code."""
    if status >= 500:
        return ExitCode.SERVER
    return _BY_STATUS.get(status, ExitCode.INVALID if 400 <= status < 500 else ExitCode.FAILED)
