"""Serializes mails (RFC 5322, RFC 2045 to 2049). No storage, no clock.

The standard library's `email` is not used: it raises for some names that the API accepts, at the moment of sending, and
folds others wrongly. Here a header holds either plain ASCII or encoded words.
"""

import base64
import binascii
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import format_datetime

from booking_core.base.clock import to_datetime
from booking_core.models.base import mailbox
from booking_core.notifications.formatting import one_line

_WORD_OCTETS = 36
"""Encoded they are 48 characters, which with the longest header name before them is well under the limit of 76."""
_PLAIN_LENGTH_MAX = 60
PICTURE_ID = "code@booking"
_UNREPLACED = frozenset("ßς")
"""Characters of domain names (IDNA 2008) that Python's codec, which follows an older standard, replaces: a mail to
straße.example would go to strasse.example, which is another domain."""
_QUOTED = str.maketrans({'"': r"\"", "\\": r"\\"})


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A name, which may be empty, and one address."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class MailContent:
    """The content of a mail, without its addresses."""

    subject: str
    text: str
    html: str
    calendar: bytes | None = None
    picture: bytes | None = None
    """A PNG that the HTML shows as `cid:` and `PICTURE_ID`."""
    language: str = "en"


def address(text: str) -> str:
    """Return the address with its domain in ASCII.

    Raises:
        ValueError: the text is not one plain mailbox.
    """
    local, _, domain = mailbox(text).rpartition("@")
    return f"{local}@{domain if domain.isascii() else '.'.join(map(_ascii_label, domain.split('.')))}"


def _ascii_label(label: str) -> str:
    """Return a label of a domain name as the DNS stores it."""
    # Character by character: `str.lower` of a whole word would turn a capital sigma at its end into a final one.
    small = unicodedata.normalize("NFKC", "".join(letter.lower() for letter in label))
    if _UNREPLACED.isdisjoint(small):
        return label.encode("idna").decode()
    return f"xn--{small.encode('punycode').decode()}"


def compose(
    content: MailContent,
    *,
    sender: Mailbox,
    recipient: Mailbox,
    reply_to: Mailbox | None,
    message_id: str,
    at: int,
) -> bytes:
    """Return the whole message, with CR LF line ends.

    Raises:
        ValueError: an address is not one plain mailbox.
    """
    headers = [
        ("From", _mailbox(sender)),
        ("To", _mailbox(recipient)),
        *([("Reply-To", _mailbox(reply_to))] if reply_to else []),
        ("Subject", _encoded(content.subject) or one_line(content.subject)),
        ("Date", format_datetime(to_datetime(at))),
        ("Message-ID", f"<{message_id}>"),
        ("Auto-Submitted", "auto-generated"),
        ("Content-Language", content.language),
        ("MIME-Version", "1.0"),
    ]
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return head.encode() + _body(content, boundary=message_id.partition("@")[0])


# Headers ---------------------------------------------------------------------------------------------------------


def _encoded(text: str) -> str | None:
    """Return encoded words for a text that is not ASCII, is long or looks like an encoded word; otherwise None."""
    text = one_line(text)
    if text.isascii() and len(text) <= _PLAIN_LENGTH_MAX and "=?" not in text:
        return None
    return "\r\n ".join(f"=?utf-8?b?{base64.b64encode(chunk).decode()}?=" for chunk in _chunks(text))


def _chunks(text: str) -> list[bytes]:
    """Split the text into UTF-8 chunks between characters."""
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
    quoted = f'"{name.translate(_QUOTED)}"'
    return f"{_encoded(name) or quoted}\r\n <{where}>"


# Body ------------------------------------------------------------------------------------------------------------


def _body(content: MailContent, *, boundary: str) -> bytes:
    html = _part("text/html; charset=utf-8", content.html)
    if content.picture is not None:
        html = _multipart("related", f"related-{boundary}", [html, _picture(content.picture)])
    texts = [_part("text/plain; charset=utf-8", content.text), html]
    alternative = _multipart("alternative", f"alternative-{boundary}", texts)
    if content.calendar is None:
        return alternative
    return _multipart("mixed", f"mixed-{boundary}", [alternative, _calendar(content.calendar)])


def _multipart(kind: str, boundary: str, parts: Sequence[bytes]) -> bytes:
    """Join the parts with a boundary that no part can contain.

    Quoted-printable encodes the equals sign of a line that begins with two hyphens and an equals sign.
    """
    line = f"--=_{boundary}".encode()
    head = f'Content-Type: multipart/{kind};\r\n boundary="=_{boundary}"\r\n\r\n'.encode()
    return head + b"".join(line + b"\r\n" + part + b"\r\n" for part in parts) + line + b"--\r\n"


def _part(content_type: str, text: str) -> bytes:
    """Encode a text part as quoted-printable: the source stays readable, and no line is too long."""
    content = "\r\n".join(text.strip().splitlines()).encode() + b"\r\n"
    head = f"Content-Type: {content_type}\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
    return head.encode() + binascii.b2a_qp(content, istext=True)


def _picture(png: bytes) -> bytes:
    """Return a picture that is a part of the HTML: no program has to load it from elsewhere."""
    head = (
        f"Content-Type: image/png\r\nContent-ID: <{PICTURE_ID}>\r\n"
        'Content-Disposition: inline; filename="code.png"\r\nContent-Transfer-Encoding: base64\r\n\r\n'
    )
    return head.encode() + base64.encodebytes(png).replace(b"\n", b"\r\n")


def _calendar(entry: bytes) -> bytes:
    """Return the calendar entry as an attachment. Its method makes some mail programs show it as an event."""
    head = (
        'Content-Type: text/calendar; charset=utf-8; method=PUBLISH; name="booking.ics"\r\n'
        'Content-Disposition: attachment; filename="booking.ics"\r\n'
        "Content-Transfer-Encoding: base64\r\n\r\n"
    )
    return head.encode() + base64.encodebytes(entry).replace(b"\n", b"\r\n")
