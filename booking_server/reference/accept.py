"""Content negotiation between HTML and JSON by the `Accept` header (RFC 9110 section 12.5.1)."""

HTML, JSON = "text/html", "application/json"


def prefers_json(accept: str) -> bool:
    """Return True if the header ranks JSON above HTML. At equal quality the type that is named wins over a wildcard."""
    ranges = [_parse(part) for part in accept.split(",")]
    return _rank(ranges, JSON) > _rank(ranges, HTML)


def _rank(ranges: list[tuple[str, float]], media_type: str) -> tuple[float, int]:
    """Return the quality and the specificity (0 to 3) of the most specific range that covers the media type."""
    patterns = ["*/*", f"{media_type.partition('/')[0]}/*", media_type]
    matches = [(patterns.index(name) + 1, quality) for name, quality in ranges if name in patterns]
    specificity, quality = max(matches, default=(0, 0.0))
    return (quality, specificity) if quality else (0.0, 0)


def _parse(part: str) -> tuple[str, float]:
    name, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = next((each.removeprefix("q=") for each in parameters if each.startswith("q=")), "1")
    try:
        return name, float(quality)
    except ValueError:
        return name, 0.0
