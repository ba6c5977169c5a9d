"""What to try where a page cannot be read: the address and the secrets are what people get wrong."""

import re
from collections.abc import Mapping

from watchdog.model import Reason

_ADDRESS = "Is the server up, and are name and port correct?"
_BY_REASON: Mapping[str, str] = {
    Reason.REFUSED: _ADDRESS,
    Reason.DNS: "Is the name correct, and does it resolve here? In a container, localhost is the container.",
    Reason.PARSE: "Is this the port of vLLM's API server, and the path /metrics?",
    Reason.EMPTY: "Is this the port of vLLM's API server, and the path /metrics?",
    Reason.NOT_SCRAPED: "Its Prometheus shows the reason under Status > Targets.",
    Reason.NOT_SEEN: "The server may be fine: check its Prometheus.",
    Reason.REDIRECT: "Use the address it points to as the target's url.",
}
_BY_STATUS: Mapping[str, str] = {
    "401": "Give the target's bearer_token_file, or username and password_file.",
    "403": "Give the target's bearer_token_file, or username and password_file.",
    "404": "Is the path correct? vLLM's page is at /metrics, often with a prefix behind a gateway.",
}
# By what OpenSSL says; where it has expired, that says it all.
_BY_CERTIFICATE: Mapping[str, str] = {
    "self-signed": "Set the target's ca_file to the certificate of its issuer.",
    "self signed": "Set the target's ca_file to the certificate of its issuer.",
    "issuer": "Set the target's ca_file to the certificate of its issuer.",
    "mismatch": "Use a name or address that is in its certificate.",
    "not valid for": "Use a name or address that is in its certificate.",
}


def advice(reason: str, detail: str) -> str:
    """What to try after a failed scrape, as a sentence; empty where the failure says it itself."""
    if reason == Reason.STATUS:
        status = re.match(r"HTTP (\d{3})", detail)
        return _BY_STATUS.get(status[1], "") if status else ""
    if reason == Reason.TLS:
        return next((what for words, what in _BY_CERTIFICATE.items() if words in detail), "")
    if reason == Reason.TRUNCATED and detail.endswith("waiting for the answer"):
        return "Does it expect TLS? Try https://."
    return _BY_REASON.get(reason, "")
