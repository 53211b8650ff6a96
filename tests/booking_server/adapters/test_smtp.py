"""The mailers, against a real mail server that does not always behave."""

import asyncio
import ssl
import stat
from collections.abc import Callable, Iterator, Sequence
from email import message_from_bytes
from pathlib import Path
from typing import Any, Protocol

import pytest
from support.receivers.smtp import DRIP, DROP, HANG, OK, TAKE_AND_DROP, MailServer, hang_up
from support.world.world import NOON

from booking_core.notifications import ClaimedMail, MailOutcome, MailResult
from booking_server.adapters import smtp
from booking_server.adapters.smtp import FileMailer, MailReport, SmtpMailer, SmtpServer

SENDER = "office@book.example"


def a_mail(number: int = 0, to: str = "ada@example.com", head: bytes = b"") -> ClaimedMail:
    message = b"Message-ID: <%d@book.example>\r\n%sSubject: x\r\n\r\n.\r\n..\r\nHello\r\n" % (number, head)
    return ClaimedMail(
        organization_id="00000000-0000-7000-8000-000000000001",
        id=f"00000000-0000-7000-8000-{number:012}",
        kind="booking_confirmation_mail",
        recipient=to,
        message=message,
        lease_token="a lease",
        attempt_count=1,
        created_at=NOON + number,
    )


@pytest.fixture
def server() -> Iterator[MailServer]:
    with MailServer() as running:
        yield running


def send(
    server: MailServer | str, *mails: ClaimedMail, mail_s: float = 10.0, tls: ssl.SSLContext | None = None
) -> list[tuple[str, MailOutcome, str | None]]:
    """Send the mails and return the result of each, sorted by the last digit of its id."""
    url = server if isinstance(server, str) else server.url
    mailer = SmtpMailer(SmtpServer.of(url), SENDER, mail_s=mail_s, tls=tls)

    async def run() -> list[MailResult]:
        results: list[MailResult] = []
        await mailer.send(mails, report_to(results))
        await hang_up()
        return results

    return sorted((result.claimed.id[-1], result.outcome, result.error) for result in asyncio.run(run()))


def report_to(results: list[MailResult]) -> MailReport:
    async def report(new: Sequence[MailResult]) -> None:
        results.extend(new)

    return report


def in_turn(*answers: str) -> Callable[[object], str]:
    """Return a server callback that gives these answers, then accepts."""
    remaining = list(answers)
    return lambda _: remaining.pop(0) if remaining else OK


def outcome(server: MailServer | str, **options: float) -> tuple[MailOutcome, str | None]:
    ((_, result, error),) = send(server, a_mail(), **options)
    return result, error


# Sent ------------------------------------------------------------------------------------------------------------


def test_a_mail_arrives_as_it_was_written(server: MailServer) -> None:
    assert outcome(server) == (MailOutcome.SENT, None)
    (received,) = server.received
    assert (received.sender, received.recipient) == (SENDER, "ada@example.com")
    assert received.raw == a_mail().message


def test_mails_of_a_batch_share_one_connection(server: MailServer) -> None:
    mails = [a_mail(number) for number in range(10)]
    assert {result for _, result, _ in send(server, *mails)} == {MailOutcome.SENT}
    assert sorted(received.raw for received in server.received) == sorted(mail.message for mail in mails)
    assert server.connections == 1


def test_a_mail_is_reported_before_the_next_mail_of_its_connection_starts(server: MailServer) -> None:
    reported: list[MailResult] = []
    most = 0

    def accept(_: object) -> str:
        nonlocal most
        most = max(most, len(server.received) + 1 - len(reported))
        return OK

    server.on_message = accept
    mailer = SmtpMailer(SmtpServer.of(server.url), SENDER)
    asyncio.run(mailer.send([a_mail(number) for number in range(20)], report_to(reported)))
    assert len(reported) == 20
    assert most == 1


@pytest.mark.parametrize(
    ("url", "sender"),
    [(f"smtp://{'a' * 70}.example", SENDER), (None, "office@bücher.example")],
    ids=["a server that cannot be looked up", "a local host name that is invalid"],
)
def test_a_wrong_setting_makes_no_mail_fail(server: MailServer, url: str | None, sender: str) -> None:
    tried: list[MailResult] = []
    asyncio.run(SmtpMailer(SmtpServer.of(url or server.url), sender).send([a_mail()], report_to(tried)))
    assert [(mail.outcome, mail.error) for mail in tried] == [(MailOutcome.DELAYED, "connect failed: not a host name")]


# Refused or delayed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("450 mailbox busy", MailOutcome.DELAYED),
        ("451 try later", MailOutcome.DELAYED),
        ("452 too many", MailOutcome.DELAYED),
        ("550 no such user", MailOutcome.REFUSED),
        ("553 not allowed", MailOutcome.REFUSED),
    ],
)
@pytest.mark.parametrize("about", ["on_recipient", "on_message"])
def test_4xx_is_retried_and_5xx_is_final(server: MailServer, about: str, answer: str, result: MailOutcome) -> None:
    setattr(server, about, in_turn(answer))
    assert outcome(server) == (result, answer)
    assert server.received == []


def test_a_refusal_affects_only_its_own_mail(server: MailServer) -> None:
    server.on_recipient = lambda address: "550 no such user" if address.startswith("gone") else OK
    server.on_message = lambda received: "451 later" if received.recipient.startswith("full") else OK
    addresses = ["gone@example.com", "ada@example.com", "full@example.com"] * 3
    mails = [a_mail(number, to) for number, to in enumerate(addresses)]
    results = [result for _, result, _ in send(server, *mails)]
    assert results == [MailOutcome.REFUSED, MailOutcome.SENT, MailOutcome.DELAYED] * 3
    assert [received.recipient for received in server.received] == ["ada@example.com"] * 3


def test_a_server_reply_is_kept_short_and_printable(server: MailServer) -> None:
    server.on_message = in_turn(f"550 {'no ' * 150}")
    _, error = outcome(server)
    assert error is not None
    assert error.startswith("550 no no")
    assert len(error) == 200


# Lost ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "arrived"), [(DROP, 0), (TAKE_AND_DROP, 1)])
def test_a_connection_lost_after_data_delays_only_its_mail(server: MailServer, how: str, arrived: int) -> None:
    server.on_message = in_turn(how)
    mails = [a_mail(0), *(a_mail(number) for number in range(1, 9))]
    results = send(server, *mails)
    assert [result for _, result, _ in results].count(MailOutcome.DELAYED) == 1
    assert {error for _, result, error in results if result is MailOutcome.DELAYED} == {"connection lost"}
    assert [result for _, result, _ in results].count(MailOutcome.SENT) == 8
    assert len(server.received) == 8 + arrived
    assert server.connections == 2


@pytest.mark.parametrize("how", [HANG, DRIP])
@pytest.mark.parametrize("about", ["on_recipient", "on_message"])
def test_a_server_that_never_finishes_is_disconnected(server: MailServer, about: str, how: str) -> None:
    setattr(server, about, lambda _: how)
    assert outcome(server, mail_s=0.3) == (MailOutcome.DELAYED, "timeout")


def test_a_batch_that_hangs_delays_no_other_batch(server: MailServer) -> None:
    server.on_recipient = lambda address: HANG if address == "staff@hangs.example" else OK
    mailer, results = SmtpMailer(SmtpServer.of(server.url), SENDER), list[MailResult]()

    async def run() -> None:
        hanging = asyncio.create_task(mailer.send([a_mail(1, "staff@hangs.example")], report_to(results)))
        await asyncio.sleep(0)
        await mailer.send([a_mail(2)], report_to(results))
        hanging.cancel()
        await asyncio.wait([hanging])
        await hang_up()

    asyncio.run(run())
    assert [(result.claimed.id[-1], result.outcome) for result in results] == [("2", MailOutcome.SENT)]


def test_a_mail_that_did_not_start_in_time_is_untried(server: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp, "BATCH_S", 0.0)
    assert outcome(server) == (MailOutcome.UNTRIED, None)
    assert server.connections == 0


def test_after_a_failed_connect_the_batch_makes_no_other_attempt(server: MailServer) -> None:
    with MailServer() as stopped:
        url = stopped.url
    results = send(url, *(a_mail(number) for number in range(9)))
    assert [(result, error) for _, result, error in results] == [(MailOutcome.DELAYED, "connect failed")] * 9


# Login and TLS ---------------------------------------------------------------------------------------------------


def test_it_logs_in_with_the_credentials_of_the_url() -> None:
    with MailServer(login=("tours@example.com", "p:ss w/rd")) as server:
        url = f"smtp://tours%40example.com:p%3Ass%20w%2Frd@127.0.0.1:{server.port}"
        assert outcome(url) == (MailOutcome.SENT, None)
        assert server.logins == [(b"tours@example.com", b"p:ss w/rd")]


def test_a_wrong_password_makes_no_mail_fail() -> None:
    with MailServer(login=("tours", "right")) as server:
        result, error = outcome(f"smtp://tours:wrong@127.0.0.1:{server.port}")
        assert result is MailOutcome.DELAYED
        assert error is not None
        assert error.startswith("login refused: 535")
        assert "wrong" not in error
        assert server.received == []


class Authority(Protocol):
    """The certificate authority of these tests."""

    file: Path

    def server(self, *names: str, expired: bool = False, self_signed: bool = False) -> ssl.SSLContext: ...


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.file)


@pytest.mark.parametrize("how", ["starttls", "tls"])
def test_tls_is_used_when_it_is_offered_or_from_the_first_byte(authority: Authority, how: str) -> None:
    with MailServer(**{how: authority.server("127.0.0.1")}) as server:
        url = server.url.replace("smtp:", "smtps:") if how == "tls" else server.url
        assert send(url, a_mail(), tls=trusting(authority)) == [("0", MailOutcome.SENT, None)]
        (received,) = server.received
        assert received.raw == a_mail().message


@pytest.mark.parametrize("how", ["starttls", "tls"])
@pytest.mark.parametrize("flaw", ["expired", "self_signed", "name"])
def test_an_invalid_certificate_delays_mails(authority: Authority, how: str, flaw: str) -> None:
    if flaw == "name":
        context = authority.server("mail.example")
    else:
        context = authority.server("127.0.0.1", expired=flaw == "expired", self_signed=flaw == "self_signed")
    server = MailServer(tls=context) if how == "tls" else MailServer(starttls=context)
    with server:
        url = server.url.replace("smtp:", "smtps:") if how == "tls" else server.url
        ((_, result, error),) = send(url, a_mail(), tls=trusting(authority))
        assert (result, str(error).partition(":")[0]) == (MailOutcome.DELAYED, "tls failed")
        assert server.received == []


# Addresses -------------------------------------------------------------------------------------------------------


def test_an_address_beyond_ascii_is_sent_to_a_server_with_smtputf8() -> None:
    message = a_mail(to="søren@example.com", head="To: søren@example.com\r\n".encode())
    with MailServer(smtputf8=True) as server:
        assert send(server, message) == [("0", MailOutcome.SENT, None)]
        assert server.received[0].recipient == "søren@example.com"
        assert "SMTPUTF8" in server.received[0].options


def test_an_address_beyond_ascii_is_refused_without_smtputf8(server: MailServer) -> None:
    message = a_mail(to="søren@example.com")
    ((_, result, error),) = send(server, message)
    assert (result, error) == (MailOutcome.REFUSED, "the mail server does not support this address")


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("smtp://mail.example", ("mail.example", 25, False, None, None)),
        ("smtp://u:p@mail.example", ("mail.example", 587, False, "u", "p")),
        ("smtps://u:p%40@mail.example", ("mail.example", 465, True, "u", "p@")),
        ("smtp://mail.example:2525/", ("mail.example", 2525, False, None, None)),
        ("smtp://u@[::1]:26", ("::1", 26, False, "u", None)),
    ],
)
def test_the_server_is_parsed_from_the_url(url: str, parts: tuple[Any, ...]) -> None:
    assert SmtpServer.of(url) == SmtpServer(*parts)


# Files -----------------------------------------------------------------------------------------------------------


def keep(folder: Path | None, *mails: ClaimedMail) -> Sequence[MailResult]:
    tried: list[MailResult] = []
    asyncio.run(FileMailer(folder).send(mails, report_to(tried)))
    return tried


def test_without_a_server_each_mail_becomes_one_file_that_sorts_by_time(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "mail"
    mails = [a_mail(2), a_mail(1), a_mail(0)]
    assert {mail.outcome for mail in keep(folder, *mails)} == {MailOutcome.PARKED}
    keep(folder, *mails)
    files = sorted(folder.iterdir())
    assert [file.read_bytes() for file in files] == [mail.message for mail in reversed(mails)]
    assert {file.suffix for file in files} == {".eml"}
    assert files[0].name.startswith("20261121T120000.000000Z-booking_confirmation_mail-")
    assert message_from_bytes(files[0].read_bytes())["Subject"] == "x"


def test_mail_files_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "mail"
    keep(folder, a_mail())
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_written_delays_mails(tmp_path: Path) -> None:
    (tmp_path / "mail").write_text("in the way")
    (tried,) = keep(tmp_path / "mail", a_mail())
    assert tried.outcome is MailOutcome.DELAYED
    assert str(tried.error).startswith("not written: ")


def test_without_a_folder_mails_are_parked() -> None:
    (tried,) = keep(None, a_mail())
    assert tried.outcome is MailOutcome.PARKED
