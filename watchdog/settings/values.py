"""Single values of the settings: URLs and what may be shown of them, durations, launch flags."""

import ipaddress
import re
import shlex
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

HIDDEN = "***"

_SECRET_FLAG = re.compile(r"(api-key|password|secret|-token)$")


def plain_number(value: Any) -> Any:
    """Refuse true and false, which Python would take for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not yes or no")  # noqa: TRY004 (pydantic wants ValueError)
    return value


def duration(value: Any) -> Any:
    """Seconds from a number or text such as `90`, `5s`, `1m30s`, `2h`; raises ValueError for other text."""
    if not isinstance(value, str):
        return plain_number(value)
    match = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", value.strip(), re.ASCII)
    if match and any(match.groups()):
        pairs = zip(match.groups(), (86400, 3600, 60, 1), strict=True)
        return sum(float(part) * unit for part, unit in pairs if part)
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", value.strip()):
        return float(value)
    raise ValueError("must be a duration such as 5s, 1m30s or 2h")


def printable(text: str) -> str:
    """Refuse text of more than one line and control characters."""
    if not text.isprintable():
        raise ValueError("must not hold control characters or line breaks")
    return text


def checked_url(url: str) -> str:
    """Refuse what is no plain http(s) URL; the text of the fault never repeats the URL."""
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
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:300]


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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def hide_path(url: str) -> str:
    """`url` with scheme and host only: a webhook's path is often its secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{HIDDEN}"


def parse_vllm_args(value: Any) -> Any:
    """Launch flags as a mapping flag -> value ("" for a bare flag), from a string, a list or a mapping.

    `vllm serve MODEL` before the flags is skipped; underscores in a flag become dashes, as vLLM does.
    Raises ValueError for quotes that do not close. Anything else is handed back for the model to refuse.
    """
    if isinstance(value, dict):
        named = {_flag(str(key)): "" if each is None else _word(each) for key, each in value.items()}
        return _without_secrets(named)
    words = shlex.split(value) if isinstance(value, str) else value
    if not isinstance(words, Sequence):
        return words
    return _without_secrets(_flag_values(list(map(_word, words))))


def _flag_values(words: list[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    last = ""
    for word in words:
        if re.match(r"--?[a-zA-Z]", word):
            name, given, text = word.partition("=")
            last = _flag(name)
            flags[last] = text
            last = "" if given else last
        elif last:
            flags[last] = f"{flags[last]} {word}".strip()
    return flags


def _without_secrets(flags: dict[str, str]) -> dict[str, str]:
    """Nothing needs a server's own keys, so they are dropped before they can be printed."""
    return {name: HIDDEN if _SECRET_FLAG.search(name) and text else text for name, text in flags.items()}


def _flag(name: str) -> str:
    dashes = name[: len(name) - len(name.lstrip("-"))] or "--"
    return dashes + name.lstrip("-").replace("_", "-")


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
