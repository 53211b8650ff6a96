"""Search for secrets, in every encoding, in all places where the service stores or logs data."""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from sqlalchemy.engine import make_url

from support.databases import databases

_TABLES = {
    True: "SELECT name FROM sqlite_master WHERE type = 'table'",
    False: "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()",
}


@dataclass(frozen=True, slots=True)
class Canary:
    """A secret, and its parts that each reveal it."""

    name: str
    parts: tuple[bytes, ...]

    def forms(self) -> frozenset[bytes]:
        """Return every encoding of the parts."""
        return frozenset(chain.from_iterable(map(_forms, self.parts)))

    def lies_in(self, hay: bytes) -> bool:
        return any(form in hay for form in self.forms())


def canary(name: str, secret: str, *parts: str | bytes) -> Canary:
    """Return a canary for the whole secret, its hash and the named parts."""
    encoded = (part.encode() if isinstance(part, str) else part for part in parts)
    return Canary(name, (secret.encode(), hashlib.sha256(secret.encode()).digest(), *encoded))


def api_key(name: str, key: str) -> Canary:
    """Return a canary for an API key. Its first twelve characters are public, and its SHA-256 is stored."""
    return Canary(name, (key.encode(), key[4:].encode(), key[12:-6].encode()))


def gift_code(name: str, code: str) -> Canary:
    """Return a canary for a gift card's code. Its last four characters are public."""
    plain = code.replace("-", "")
    return canary(name, code, code[:-5], plain[:-4], code[:-5].lower())


def webhook_secret(name: str, secret: str) -> Canary:
    encoded = secret.removeprefix("whsec_")
    return canary(name, secret, encoded, base64.b64decode(encoded))


def manage_link(name: str, url: str) -> Canary:
    """Return a canary for a guest's link. Its token begins with public ids; the rest is secret."""
    token = url.rpartition("/")[2]
    return canary(name, url, token, token[43:], base64.urlsafe_b64decode(token)[32:])


def _forms(part: bytes) -> Iterator[bytes]:
    yield part
    yield part.hex().encode()
    yield part.hex().upper().encode()
    yield quote(part).encode()
    yield quote(part, safe="").encode()
    for skipped in range(3):  # the base64 of a text depends on the number of bytes before it
        whole = base64.b64encode(bytes(skipped) + part)
        begin, end = -(-8 * skipped // 6), (8 * (skipped + len(part))) // 6
        encoded = whole[begin:end]
        yield encoded
        yield encoded.translate(bytes.maketrans(b"+/", b"-_"))


# Places to search ------------------------------------------------------------------------------------------------


def sweep(canaries: Iterable[Canary], places: Mapping[str, bytes]) -> set[tuple[str, str]]:
    """Return (canary, place) of each secret found."""
    return {(secret.name, place) for secret in canaries for place, hay in places.items() if secret.lies_in(hay)}


def stored(url: str) -> dict[str, bytes]:
    """Return the text of every table in the database's catalogue; with SQLite also the content of its files."""
    is_sqlite = databases.is_sqlite(url)
    with databases.connect(url) as connection:
        names = [name for (name,) in connection.execute(_TABLES[is_sqlite]).fetchall()]
        texts = {
            f"table {name}": b"\n".join(
                chain.from_iterable(map(_texts, connection.execute(f'SELECT * FROM "{name}"').fetchall()))
            )
            for name in names
        }
    return texts | (_files(Path(str(make_url(url).database))) if is_sqlite else {})


def _texts(row: tuple[object, ...]) -> Iterator[bytes]:
    for value in row:
        yield value if isinstance(value, bytes) else str(value).encode()


def _files(path: Path) -> dict[str, bytes]:
    """Return the database file, its log, and other files with its name as prefix."""
    beside = path.parent.glob(f"{path.name}*")
    return {f"file *{file.name.removeprefix(path.name)}": file.read_bytes() for file in beside}
