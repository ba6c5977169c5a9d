"""What every answer has in common: JSON that is always valid, one shape for errors, and the safe headers."""

from collections.abc import Mapping

from fastapi.responses import Response

from watchdog.report.bodies import Body, ErrorBody, ErrorDetail

SAFE_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}

REASONS = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    414: "uri_too_long",
    415: "unsupported_media_type",
    422: "invalid_request",
    500: "internal_error",
    503: "unavailable",
}


class BodyResponse(Response):
    """A body as JSON."""

    media_type = "application/json"

    def __init__(self, body: Body, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(
            body.model_dump_json().encode(), status_code, headers=SAFE_HEADERS | dict(headers or {})
        )


def error_response(
    status: int, message: str, reason: str = "", headers: Mapping[str, str] | None = None
) -> BodyResponse:
    """An error in the one shape; `reason` follows from the status where none is given."""
    detail = ErrorDetail(status=status, reason=reason or REASONS.get(status, "error"), message=message[:1000])
    return BodyResponse(ErrorBody(error=detail), status, headers)
