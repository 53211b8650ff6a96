"""The static files of the pages: our own, and those of Swagger UI, which the package `fastapi-swagger` brings."""

import gzip
import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""`data:` is for the icons in Swagger UI's style sheet."""

_SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}

_MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_OUR_FILES = files("booking_server.reference") / "static"
_SWAGGER_UI_FILES = files("fastapi_swagger") / "resources"
_FOLDERS = {
    "icon.svg": _OUR_FILES,
    "index.css": _OUR_FILES,
    "reference.css": _OUR_FILES,
    "reference.js": _OUR_FILES,
    "swagger-ui-bundle.js": _SWAGGER_UI_FILES,
    "swagger-ui.css": _SWAGGER_UI_FILES,
}
NAMES = frozenset(_FOLDERS)
"""The files below `/docs/assets/`."""


@dataclass(frozen=True, slots=True)
class StaticContent:
    """A body that changes only with a release, and what is derived from it once."""

    body: bytes
    media_type: str
    compressed: bytes = field(init=False)
    etag: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "compressed", gzip.compress(self.body, mtime=0))
        # Weak, because one tag stands for the compressed and the plain body.
        object.__setattr__(self, "etag", f'W/"{hashlib.sha256(self.body).hexdigest()[:32]}"')

    def response(self, request: Request) -> Response:
        """Return the body, compressed if the client accepts it, or 304 if the client has it."""
        headers = {**_SECURITY_HEADERS, "cache-control": "no-cache", "etag": self.etag}
        headers["vary"] = "Accept, Accept-Encoding"
        if _matches(request.headers.get("if-none-match", ""), self.etag):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            return Response(self.compressed, headers=headers, media_type=self.media_type)
        return Response(self.body, headers=headers, media_type=self.media_type)


def _matches(if_none_match: str, etag: str) -> bool:
    """Compare as RFC 9110 section 13.1.2 says: weakly."""
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag.removeprefix("W/") in tags


@lru_cache(maxsize=len(NAMES))
def load(name: str) -> StaticContent:
    """Read a file of `NAMES`. The first call for Swagger UI takes about 60 ms, most of it to compress the script."""
    return StaticContent((_FOLDERS[name] / name).read_bytes(), _MEDIA_TYPES[name.rpartition(".")[2]])


@lru_cache
def load_page(name: str) -> StaticContent:
    """Read an HTML page of ours."""
    return StaticContent((_OUR_FILES / name).read_bytes(), _MEDIA_TYPES["html"])
