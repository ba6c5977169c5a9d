"""A client of one endpoint: whom it trusts, who it says it is, and what lies under the errors of its exchanges."""

import base64
import errno
import ssl
import stat
from collections.abc import Iterator
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path

import requests

from watchdog import __version__
from watchdog.http.endpoint import Endpoint
from watchdog.http.wire import Adapter

USER_AGENT = f"vllm-watchdog/{__version__}"
SECRET_BYTES = 64 * 1024
# How the system says that we, not the other side, have run out of something.
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL})


class SecretFileError(Exception):
    """The file of a secret is of no use; the text names the setting and the file, never what it holds."""


class CertificateFileError(Exception):
    """A file of certificates or of a key is missing; the text names the setting and the file."""


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002
        """Never follow: the library would read a redirect's body, however long, to prepare the next step."""
        return None


def open_session(endpoint: Endpoint, adapter: Adapter) -> requests.Session:
    """A session that trusts what `endpoint` says, keeps no cookies and hears nothing of the environment."""
    session = _Session()
    session.trust_env = False
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
    session.headers.update({"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})
    session.verify = str(endpoint.ca_file) if endpoint.ca_file else True
    if endpoint.insecure_skip_verify:
        session.verify = False
    if endpoint.cert_file:
        certificate = str(endpoint.cert_file)
        session.cert = (certificate, str(endpoint.key_file)) if endpoint.key_file else certificate
    return session


def check_certificate_files(endpoint: Endpoint) -> None:
    """Raises CertificateFileError where a file that TLS needs is missing: the libraries name none of them."""
    for name in ("ca_file", "cert_file", "key_file"):
        path = getattr(endpoint, name)
        if path is not None and not Path(path).exists():
            raise CertificateFileError(f"{name} {path} does not exist")


def authorization(endpoint: Endpoint, url_user: str, url_password: str) -> dict[str, str]:
    """The header that proves who we are, empty where none is needed; read again each time, as secrets are rotated.

    `url_user` and `url_password` stood in the URL; each counts where the settings do not give it.
    Raises SecretFileError.
    """
    if endpoint.bearer_token_file is not None:
        return {"Authorization": f"Bearer {_secret('bearer_token_file', endpoint.bearer_token_file)}"}
    if endpoint.bearer_token is not None:
        return {"Authorization": f"Bearer {endpoint.bearer_token}"}
    user, password = endpoint.username, url_password
    if endpoint.password is not None:
        password = endpoint.password
    if endpoint.password_file is not None:
        password = _secret("password_file", endpoint.password_file)
    if user is None and (url_user or url_password):
        user = url_user
    if user is None:
        return {}
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def _secret(name: str, path: Path) -> str:
    """The text of a secret's file without space around it; raises SecretFileError if there is none."""
    try:
        # A pipe would be waited for without end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise SecretFileError(f"{name} {path} is not a regular file")
        with path.open("rb") as file:
            content = file.read(SECRET_BYTES).strip()
    except OSError as error:
        if out_of_resources(error):
            raise
        raise SecretFileError(f"{name} {path} cannot be read: {error.strerror}") from None
    if not content:
        raise SecretFileError(f"{name} {path} is empty")
    if not content.isascii() or not content.decode().isprintable():
        raise SecretFileError(f"{name} {path} holds more than one line of ASCII text")
    return content.decode()


def underlying(error: BaseException) -> Iterator[BaseException]:
    """An error and all that libraries have wrapped in it, from the outside in; they hide it in several places."""
    seen: set[int] = set()
    ahead: list[object] = [error]
    while ahead:
        cause = ahead.pop(0)
        if isinstance(cause, BaseException) and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            ahead += [*cause.args, getattr(cause, "reason", None), cause.__cause__, cause.__context__]


def out_of_resources(cause: BaseException) -> bool:
    """Whether the fault is ours: out of files, ports, memory or threads."""
    if isinstance(cause, OSError):
        return cause.errno in OUT_OF_RESOURCES
    return isinstance(cause, MemoryError) or (isinstance(cause, RuntimeError) and "thread" in str(cause))


def system_words(cause: BaseException) -> str:
    """The system's own words for an error, without the URL that the libraries put in theirs."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"certificate not accepted, {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return (cause.reason or cause.strerror or type(cause).__name__).replace("_", " ").lower()
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    if isinstance(cause, UnicodeError):
        return "not a host name"
    return type(cause).__name__
