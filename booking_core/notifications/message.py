"""A mail as it goes over the wire (RFC 5322, RFC 2045 to 2049). No storage, no clock.

Written by hand rather than by `email`: that refuses some names which the API accepts, with an exception at the moment
of sending, and folds others wrongly. Here a header holds either plain ASCII or encoded words, whatever was typed.
"""

import base64
import binascii
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import format_datetime

from booking_core.clock import to_datetime
from booking_core.models.base import mailbox
from booking_core.notifications.wording import one_line

_WORD_OCTETS = 36
"""Encoded they are 48 characters, and with the longest name of a header before them well under the limit of 76."""
_PLAIN_LENGTH_MAX = 60
_KEPT = frozenset("ßς")
"""Letters of today's domain names (IDNA 2008) that the codec of an older standard makes others of: the mail to a guest
at straße.example would go to strasse.example, which is somebody else's."""
_QUOTED = str.maketrans({'"': r"\"", "\\": r"\\"})


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A name, which may be empty, and one address."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Letter:
    """What a mail says, before it is addressed."""

    subject: str
    text: str
    html: str
    calendar: bytes | None = None


def address(text: str) -> str:
    """The one address, its domain in ASCII.

    Raises:
        ValueError: it is not one plain mailbox.
    """
    local, _, domain = mailbox(text).rpartition("@")
    return f"{local}@{domain if domain.isascii() else '.'.join(map(_ascii_label, domain.split('.')))}"


def _ascii_label(label: str) -> str:
    """A part of a domain's name as the DNS has it."""
    # Letter by letter: a sigma is not a final one because it was written in capitals.
    small = unicodedata.normalize("NFKC", "".join(letter.lower() for letter in label))
    if _KEPT.isdisjoint(small):
        return label.encode("idna").decode()
    return f"xn--{small.encode('punycode').decode()}"


def compose(
    letter: Letter,
    *,
    sender: Mailbox,
    recipient: Mailbox,
    reply_to: Mailbox | None,
    message_id: str,
    at: int,
) -> bytes:
    """The whole message, its lines ended by CR LF.

    Raises:
        ValueError: an address is not one plain mailbox.
    """
    headers = [
        ("From", _mailbox(sender)),
        ("To", _mailbox(recipient)),
        *([("Reply-To", _mailbox(reply_to))] if reply_to else []),
        ("Subject", _encoded(letter.subject) or _unstructured(letter.subject)),
        ("Date", format_datetime(to_datetime(at))),
        ("Message-ID", f"<{message_id}>"),
        ("Auto-Submitted", "auto-generated"),
        ("Content-Language", "en"),
        ("MIME-Version", "1.0"),
    ]
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return head.encode() + _body(letter, boundary=message_id.partition("@")[0])


# Headers ---------------------------------------------------------------------------------------------------------


def _unstructured(text: str) -> str:
    return one_line(text)


def _encoded(text: str) -> str | None:
    """Encoded words, when the text cannot stand as it is: it is not ASCII, is long, or looks like one."""
    text = one_line(text)
    if text.isascii() and len(text) <= _PLAIN_LENGTH_MAX and "=?" not in text:
        return None
    return "\r\n ".join(f"=?utf-8?b?{base64.b64encode(chunk).decode()}?=" for chunk in _chunks(text))


def _chunks(text: str) -> list[bytes]:
    """The text in UTF-8, cut between characters."""
    chunks = [bytearray()]
    for character in text:
        octets = character.encode()
        if len(chunks[-1]) + len(octets) > _WORD_OCTETS:
            chunks.append(bytearray())
        chunks[-1] += octets
    return [bytes(chunk) for chunk in chunks]


def _mailbox(of: Mailbox) -> str:
    name, where = one_line(of.name), address(of.address)
    if not name:
        return where
    return f"{_encoded(name) or _quoted(name)}\r\n <{where}>"


def _quoted(name: str) -> str:
    return f'"{name.translate(_QUOTED)}"'


# Body ------------------------------------------------------------------------------------------------------------


def _body(letter: Letter, *, boundary: str) -> bytes:
    texts = [
        _part("text/plain; charset=utf-8", letter.text),
        _part("text/html; charset=utf-8", letter.html),
    ]
    alternative = _multipart("alternative", f"alternative-{boundary}", texts)
    if letter.calendar is None:
        return alternative
    return _multipart("mixed", f"mixed-{boundary}", [alternative, _calendar(letter.calendar)])


def _multipart(kind: str, boundary: str, parts: Sequence[bytes]) -> bytes:
    """The parts between lines that none of them can hold: within a part every line that begins with two hyphens and an
    equals sign has that sign encoded."""
    line = f"--=_{boundary}".encode()
    head = f'Content-Type: multipart/{kind};\r\n boundary="=_{boundary}"\r\n\r\n'.encode()
    return head + b"".join(line + b"\r\n" + part + b"\r\n" for part in parts) + line + b"--\r\n"


def _part(content_type: str, text: str) -> bytes:
    """Quoted-printable: what a person may have to read in the raw stays readable, and no line is too long."""
    content = "\r\n".join(text.strip().splitlines()).encode() + b"\r\n"
    head = f"Content-Type: {content_type}\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
    return head.encode() + binascii.b2a_qp(content, istext=True)


def _calendar(entry: bytes) -> bytes:
    """An attachment, which every program offers to open; named by its method, so that some show it as an event."""
    head = (
        'Content-Type: text/calendar; charset=utf-8; method=PUBLISH; name="booking.ics"\r\n'
        'Content-Disposition: attachment; filename="booking.ics"\r\n'
        "Content-Transfer-Encoding: base64\r\n\r\n"
    )
    return head.encode() + base64.encodebytes(entry).replace(b"\n", b"\r\n")
