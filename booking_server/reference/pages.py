"""The pages, their files and their headers."""

from pathlib import Path
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from booking_core.base.errors import NotFound

_READ = ["GET", "HEAD"]
_FILES = StaticFiles(packages=[("booking_server.reference", "static"), ("fastapi_swagger", "resources")])
_MISSING = (Path(__file__).parent / "static" / "missing.html").read_text(encoding="utf-8")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""`data:` is for the icons in Swagger UI's style sheet."""
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}

router = APIRouter(include_in_schema=False)


@router.api_route("/", methods=_READ)
async def get_index(request: Request) -> Response:
    """Return the page that says where the guides and the reference are."""
    return await get_asset(request, "index.html")


@router.api_route("/docs", methods=_READ)
async def get_docs(request: Request) -> Response:
    """Return the page that starts Swagger UI."""
    return await get_asset(request, "docs.html")


@router.api_route("/docs/assets/{name}", methods=_READ)
async def get_asset(request: Request, name: str) -> Response:
    """Return a file, or status 304 if the client has it."""
    try:
        response = await _FILES.get_response(name, request.scope)
    except HTTPException:
        raise NotFound("There is no such path.") from None
    response.headers.update(_HEADERS)
    return response


def read_asset(name: str) -> str:
    """Return the text of a file that the pages load, or of a page."""
    return Path(_FILES.lookup_path(name)[0]).read_text(encoding="utf-8")


def missing_page(path: str, public_url: str) -> Response:
    """Return the page for a path that does not exist, with links below the public URL. `/docs/` leads to `/docs`."""
    base = urlsplit(public_url).path.rstrip("/")
    if path == "/docs/":
        return RedirectResponse(f"{base}/docs", 302, _HEADERS)
    return HTMLResponse(_MISSING.replace("BASE/", f"{base}/"), 404, _HEADERS | {"vary": "accept"})
