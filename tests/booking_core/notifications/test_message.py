"""A message that every mail program reads as intended, with any guest's name."""

from email import message_from_bytes
from email.header import decode_header, make_header
from email.headerregistry import AddressHeader
from email.message import EmailMessage
from email.policy import compat32, default
from email.utils import unquote
from typing import Any

import idna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from booking_core.base.clock import to_datetime
from booking_core.notifications import message
from booking_core.notifications.formatting import one_line
from booking_core.notifications.message import Mailbox, MailContent

NOON = 1_795_262_400_000_000
CONTENT = MailContent("A subject", "Hello.\n\n.\nFrom here\n--=_x\n= ö 👋\n", "<p>Hello ö</p>\n")

NAMES = [
    "Ada Lovelace",
    "Ada\u2028Bcc: eve@evil.example",
    "Ada\r\nBcc: eve@evil.example\r\n\r\nAnother body",
    "Ada\x0bX-Evil: 1",
    'Ada "the countess" \\ Lovelace',
    "Ada <eve@evil.example>, Eve",
    "=?utf-8?q?=0D=0ABcc:_eve@evil.example?=",
    "👩‍🚀 Ada 🇳🇴",
    "<script>alert(1)</script>",
    "שלום \u202eevil עולם",
    "é" * 200,
    "a" * 200,
    "👩‍🚀" * 50,
    "(comment) ada; group:",
    ".",
    "",
]


def composed(**over: Any) -> bytes:
    arguments: dict[str, Any] = {
        "content": CONTENT,
        "sender": Mailbox("Fjord Tours", "office@book.example"),
        "recipient": Mailbox("Ada", "ada@example.com"),
        "reply_to": None,
        "message_id": "0123456789abcdef@book.example",
        "at": NOON,
    }
    arguments |= over
    return message.compose(arguments.pop("content"), **arguments)


def read(raw: bytes) -> EmailMessage:
    parsed = message_from_bytes(raw, policy=default)
    assert isinstance(parsed, EmailMessage)
    for part in parsed.walk():
        assert part.defects == []
    return parsed


def only_address(parsed: EmailMessage, header: str) -> tuple[str, str]:
    (value,) = parsed.get_all(header) or []
    assert isinstance(value, AddressHeader)
    assert value.defects == ()
    (address,) = value.addresses
    return name_in(parsed, header), address.addr_spec


def name_in(parsed: EmailMessage, header: str) -> str:
    """Return the name before the address. The newer parser of the standard library puts a blank between two encoded
    words of a name, where the standard wants none; the older one does not."""
    raw = message_from_bytes(bytes(parsed), policy=compat32)[header]
    name = raw.rpartition("<")[0].strip()
    return unquote(name) if name.startswith('"') else str(make_header(decode_header(name)))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_only_a_name(name: str) -> None:
    raw = composed(sender=Mailbox(name, "office@book.example"), recipient=Mailbox(name, "ada@example.com"))
    parsed = read(raw)
    assert only_address(parsed, "To") == (one_line(name), "ada@example.com")
    assert only_address(parsed, "From") == (one_line(name), "office@book.example")
    assert set(parsed.keys()) == {
        "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "Content-Language", "MIME-Version",
        "Content-Type",
    }  # fmt: skip


@pytest.mark.parametrize("text", NAMES)
def test_a_subject_is_only_a_subject(text: str) -> None:
    parsed = read(composed(content=MailContent(text, "x", "x")))
    assert parsed["Subject"] == one_line(text)
    assert "Bcc" not in parsed
    assert "X-Evil" not in parsed


@pytest.mark.parametrize("name", NAMES)
def test_every_line_is_ascii_and_short_enough(name: str) -> None:
    content = MailContent(name, f"{name}\n" * 3, f"<p>{'x' * 3000}</p>")
    head, _, body = composed(content=content, recipient=Mailbox(name, "ada@example.com")).partition(b"\r\n\r\n")
    assert head.isascii()
    assert body.isascii()
    assert max(map(len, head.split(b"\r\n"))) <= 78
    assert max(map(len, body.split(b"\r\n"))) <= 78
    assert b"\n" not in (head + body).replace(b"\r\n", b"")
    assert b"\r" not in (head + body).replace(b"\r\n", b"")


@given(st.text(max_size=200), st.text(max_size=200))
def test_no_text_at_all_breaks_a_header(name: str, subject: str) -> None:
    parsed = read(composed(content=MailContent(subject, "x", "x"), recipient=Mailbox(name, "ada@example.com")))
    assert only_address(parsed, "To")[1] == "ada@example.com"
    assert len(parsed.keys()) == 9


@pytest.mark.parametrize(
    "address",
    ["a@b.c,d@e.f", "a@b.c\r\nBcc: d@e.f", "Ada <a@b.c>", '"x\r\ny"@e.f', "a b@c.de", "nobody", "", "a@b.c>", "@b.c"],
)
def test_what_is_not_one_mailbox_is_refused(address: str) -> None:
    with pytest.raises(ValueError):
        composed(recipient=Mailbox("Ada", address))


def test_a_domain_of_other_letters_is_written_in_ascii() -> None:
    assert message.address("ada@bücher.example") == "ada@xn--bcher-kva.example"
    assert only_address(read(composed(recipient=Mailbox("", "ada@bücher.example"))), "To")[1] == (
        "ada@xn--bcher-kva.example"
    )


@pytest.mark.parametrize(
    "domain",
    ["straße.example", "STRAẞE.example", "ναυς.example", "ΝΑΥΣ.example", "bücher.straße.example", "日本語.example"],
)
def test_a_domain_stays_the_one_that_the_guest_has(domain: str) -> None:
    """IDNA 2003 would make another of some, and send the guest's secret link there."""
    looked_up = idna.encode(domain.replace("ẞ", "ß"), uts46=True).decode()
    assert message.address(f"ada@{domain}") == f"ada@{looked_up}"


def test_a_name_before_the_at_sign_in_other_letters_is_kept() -> None:
    assert "To: søren@example.com".encode() in composed(recipient=Mailbox("", "søren@example.com"))


def test_the_two_bodies_arrive_as_they_were_written() -> None:
    parsed = read(composed())
    assert parsed.get_content_type() == "multipart/alternative"
    plain, html = parsed.iter_parts()
    assert (plain.get_content_type(), html.get_content_type()) == ("text/plain", "text/html")
    assert plain.get_content().replace("\r\n", "\n") == CONTENT.text
    assert html.get_content().replace("\r\n", "\n") == CONTENT.html


def test_a_calendar_entry_is_attached() -> None:
    entry = b"BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"
    parsed = read(composed(content=MailContent("s", "t", "h", entry)))
    assert parsed.get_content_type() == "multipart/mixed"
    alternative, attached = parsed.iter_parts()
    assert [part.get_content_type() for part in alternative.iter_parts()] == ["text/plain", "text/html"]
    assert attached.get_content_type() == "text/calendar"
    assert attached["Content-Type"].params["method"] == "PUBLISH"
    assert attached.get_filename() == "booking.ics"
    assert attached.get_payload(decode=True) == entry


def test_the_headers_say_who_when_and_that_a_program_wrote() -> None:
    parsed = read(composed(reply_to=Mailbox("Fjord, Tours", "staff@example.com")))
    assert only_address(parsed, "Reply-To") == ("Fjord, Tours", "staff@example.com")
    assert parsed["Message-ID"] == "<0123456789abcdef@book.example>"
    assert parsed["Date"].datetime == to_datetime(NOON)
    assert parsed["Auto-Submitted"] == "auto-generated"
