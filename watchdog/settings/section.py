"""What sections of the settings are made of: the types of single values, and credentials for another server."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)

from watchdog.http.endpoint import Endpoint
from watchdog.http.url import checked_url, hide_path, redact_url, split_user_info, with_scheme
from watchdog.schema import Text
from watchdog.settings.values import on_one_line, plain_number

Number = Annotated[float, BeforeValidator(plain_number)]
Count = Annotated[int, BeforeValidator(plain_number)]
Seconds = Annotated[float, BeforeValidator(plain_number), Field(gt=0, le=366 * 86400)]
Line = Annotated[Text, AfterValidator(on_one_line), Field(max_length=2048)]
LabelName = Annotated[Text, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=100)]
Url = Annotated[Text, AfterValidator(checked_url)]


class Section(BaseModel):
    """A part of the settings: unknown keys are refused, values are never printed in errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False, validate_default=True
    )

    hides_paths: ClassVar[bool] = False
    """Whether even the path of a URL in here may be a secret, as that of a chat's webhook is."""

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        show = hide_path if self.hides_paths else redact_url
        for name, value in super().__repr_args__():
            is_url = name is not None and name.endswith("url") and isinstance(value, str)
            yield name, show(value) if is_url else value


class Credentials(Section):
    """How to prove who we are to another server; secrets are files, read again at each use."""

    bearer_token_file: Path | None = Field(
        default=None, description="File with a bearer token, read at each use."
    )
    username: Line | None = Field(default=None, description="User name for basic authentication.")
    password_file: Path | None = Field(
        default=None, description="File with the password for basic authentication, read at each use."
    )
    password: SecretStr | None = Field(
        default=None,
        description="Password for basic authentication, where a file will not do (taken from the URL).",
    )
    ca_file: Path | None = Field(default=None, description="Certificates to trust instead of the system's.")
    cert_file: Path | None = Field(default=None, description="Client certificate (PEM).")
    key_file: Path | None = Field(default=None, description="Key of the client certificate (PEM).")
    insecure_skip_verify: bool = Field(default=False, description="Do not verify the server's certificate.")

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, values: Any) -> Any:
        """Accepts a bare URL, and moves user info out of the URL so that it is printed nowhere."""
        if isinstance(values, str):
            values = {"url": values}
        if not isinstance(values, dict) or not isinstance(values.get("url"), str):
            return values
        url, username, password = split_user_info(with_scheme(values["url"].strip()))
        moved = {"username": username, "password": password}
        return cls.completed(values | {"url": url} | {key: value for key, value in moved.items() if value})

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """`values`, which have a `url` without user info, with what follows from the URL filled in."""
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.password_file is not None and self.password is not None:
            raise ValueError("give the password once: either password_file, or password (also in the URL)")
        has_password = self.password_file is not None or self.password is not None
        if has_password and self.username is None:
            raise ValueError("a password needs a username")
        if self.bearer_token_file is not None and self.username is not None:
            raise ValueError("give either bearer_token_file or a username, not both")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file needs cert_file")
        return self

    def endpoint_at(self, url: str) -> Endpoint:
        """`url` with these credentials."""
        return Endpoint(
            url=url,
            bearer_token_file=self.bearer_token_file,
            username=self.username,
            password_file=self.password_file,
            password=self.password.get_secret_value() if self.password else None,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            insecure_skip_verify=self.insecure_skip_verify,
        )
