"""The API held against its own document, with requests made from it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.a_service import NOW, History, a_service, down, incident, recorded, snapshot
from tests.a_site import web
from watchdog.model import State, Transition
from watchdog.web.api import create_app


def test_the_api_does_what_its_document_says(tmp_path: Path) -> None:
    """Right and wrong requests made from the document: no 5xx, no undescribed answer, nothing wrong let pass."""
    service = a_service(
        tmp_path,
        recorded("kv-pool-exhausted", tmp_path),
        recorded("dp-imbalance", tmp_path),
        recorded("idle", tmp_path),
        snapshot("chat"),
        down("batch"),
    )
    service.history = History((Transition(incident(), State.PENDING, NOW - 200),))
    app = create_app(service, web(reload_endpoint=True), lambda: NOW)
    refused = {"negative_data_rejection": {"expected-statuses": [400, 404, 405, 413, 414, 415, 422]}}
    config = schemathesis.Config.from_dict({"checks": refused})
    document = schemathesis.openapi.from_asgi("/openapi.json", app, config=config)
    operations = [found.ok() for found in document.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) == 15
    for operation in operations:
        examples = 6 if operation.query or operation.path_parameters or operation.body else 1
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=examples,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            def answers(case: schemathesis.Case[Any]) -> None:
                # Of `since` the document says in words what it may be, so made-up text is rightly refused.
                excluded: list[Any] = [positive_data_acceptance] if "since" in (case.query or {}) else []
                case.call_and_validate(excluded_checks=excluded)

            with suppress(hypothesis.errors.Unsatisfiable):  # nothing can be wrong where nothing is asked
                answers()
