"""What the pages with long lists share: their filters are in the address, so that a list can be sent to somebody or reloaded."""

from datetime import UTC, date, datetime, timedelta
from urllib.parse import urlencode


def address(path: str, **fields: object) -> str:
    """The page with these filters; empty ones are left out."""
    query = urlencode({name: str(value) for name, value in fields.items() if value not in (None, "", False)})
    return f"{path}?{query}" if query else path


def day_start(text: str) -> datetime | None:
    """Midnight (UTC) of a day in a filter; None for an empty field or one that is not a day."""
    try:
        return datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    except ValueError:
        return None


def day_end(text: str) -> datetime | None:
    """The midnight after it, so that the day itself is included; None where no such day follows."""
    start = day_start(text)
    return None if start is None or start.date() == date.max else start + timedelta(days=1)


def chosen(value: str, among: tuple[str, ...], otherwise: str = "") -> str:
    """A choice from the address, if it is one of ours."""
    return value if value in among else otherwise
