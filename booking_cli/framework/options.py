"""The option of every command whose change must not happen twice."""

from typing import Annotated

import typer

from booking_cli.framework.arguments import idempotency_key

Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        metavar="KEY",
        parser=idempotency_key,
        help="The same command with the same key happens once; made for this run unless given.",
    ),
]
