"""URLs as people write them: what is none, what may be shown of them, which mean the same page."""

import ipaddress
import re
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from watchdog.text import one_line

HIDDEN = "***"


def checked_url(url: str) -> str:
    """Refuses what is no plain http(s) URL; the text of the fault never repeats the URL."""
    if not url.isprintable() or "\\" in url or any(letter.isspace() for letter in url):
        raise ValueError("must be a URL without blanks, backslashes or control characters")
    if len(url) > 2048:
        raise ValueError("must be at most 2048 characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("must be a URL with a valid host and port") from None
    if parts.scheme not in {"http", "https"}:
        raise ValueError("must start with http:// or https://")
    if not parts.hostname or parts.netloc.endswith(":") or port == 0 or not _is_host(parts.hostname):
        raise ValueError("must be a URL with a valid host and port")
    if parts.fragment:
        raise ValueError("must not have a fragment (#...)")
    return url


def _is_host(host: str) -> bool:
    if ":" in host:
        try:
            return ipaddress.ip_address(host.partition("%")[0]).version == 6
        except ValueError:
            return False
    return len(host) <= 253 and re.fullmatch(r"[\w.-]+", host) is not None


def redact_url(url: str) -> str:
    """`url` without user info and query values, on one line of at most 300 characters; never raises."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return HIDDEN
    query = "&".join(f"{pair.partition('=')[0]}={HIDDEN}" for pair in parts.query.split("&") if pair)
    text = urlunsplit((parts.scheme, host, parts.path, query, ""))
    return one_line(text, 300)


def hide_path(url: str) -> str:
    """`url` with scheme and host only: a webhook's path is often its secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{HIDDEN}"


def split_user_info(url: str) -> tuple[str, str, str]:
    """`url` without its user info, the user name and the password; empty text where there is none."""
    scheme, mark, rest = url.partition("://")
    authority, slash, tail = re.match(r"([^/?#]*)([/?#]?)(.*)", rest, re.S).groups()  # type: ignore[union-attr]
    user_info, at, host = authority.rpartition("@")
    if not mark or not at:
        return url, "", ""
    username, _, password = user_info.partition(":")
    return f"{scheme}://{host}{slash}{tail}", unquote(username), unquote(password)


def host_and_port(url: str) -> str:
    """`host:port` as written in `url`, without user info; empty where there is none."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def with_scheme(url: str) -> str:
    """`http://` before a bare host:port."""
    return url if "://" in url else f"http://{url}"


def with_metrics_path(url: str) -> str:
    """`url` with the path /metrics where it has none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return urlunsplit(parts._replace(path="/metrics")) if parts.path in {"", "/"} else url


def canonical_url(url: str) -> str:
    """The same text for two URLs that mean the same page."""
    parts: SplitResult = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{(parts.hostname or '').rstrip('.')}:{port}{parts.path or '/'}?{parts.query}"


def host_of(url: str) -> str:
    """The host of `url`, without port and brackets; empty where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def beside(page_url: str, path: str) -> str:
    """The URL of `path` next to a metrics page: what stands before `/metrics` stays."""
    parts = urlsplit(page_url)
    root = parts.path.rstrip("/").rpartition("/")[0]
    return urlunsplit((parts.scheme, parts.netloc, f"{root}/{path}", "", ""))
