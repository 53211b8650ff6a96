"""Parse timestamps of options in the time zone of an organization."""

from typing import TYPE_CHECKING, overload

from booking_cli.framework.errors import CliError

if TYPE_CHECKING:
    from booking_core.base.context import Organization


@overload
def parse_instant(organization: "Organization", option: str, text: str) -> int: ...


@overload
def parse_instant(organization: "Organization", option: str, text: str | None) -> int | None: ...


def parse_instant(organization: "Organization", option: str, text: str | None) -> int | None:
    """Return an instant in microseconds from an ISO 8601 timestamp; None stays None.

    A timestamp without an offset is in the organization's time zone.

    Raises:
        CliError: the text is not a timestamp; the message names the option.
    """
    if text is None:
        return None
    try:
        return organization.zone.parse(text)
    except ValueError as error:
        raise CliError(f"{option} {error}.", hint="write 2027-01-31T09:00:00 or 2027-01-31T09:00:00+01:00") from None
