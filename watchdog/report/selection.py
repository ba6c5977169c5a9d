"""A part of a fleet: the servers of one verdict, one model, or with certain labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from watchdog.model import NO_LABELS, Verdict
from watchdog.report.bodies import DiagnosisBody, TargetBody, fleet_verdicts, worst


@dataclass(frozen=True, slots=True)
class Selection:
    """What is asked for; what is None or empty asks for nothing, and all servers are shown."""

    state: Verdict | None = None
    model: str | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.state is None and self.model is None and not self.labels

    @property
    def asked(self) -> list[tuple[str, str]]:
        """As query parameters."""
        labels = [("label", f"{name}={value}") for name, value in self.labels.items()]
        state, model = [("state", str(self.state))], [("model", self.model or "")]
        return [*(state if self.state else []), *(model if self.model else []), *labels]

    @property
    def words(self) -> list[str]:
        """What is asked for, for people."""
        return [value for _, value in self.asked]

    def of(self, diagnosis: DiagnosisBody) -> DiagnosisBody:
        """The diagnosis of these servers, and of the fleets that they belong to; its verdict is theirs."""
        if self.is_all:
            return diagnosis
        shown = [each for each in diagnosis.targets if self._has(each)]
        models = {model for each in shown for model in each.vllm.models}
        fleet = [each for each in diagnosis.fleet if each.labels.get("model_name") in models]
        verdicts = [*(each.verdict for each in shown), *fleet_verdicts(fleet)]
        return diagnosis.model_copy(update={"targets": shown, "fleet": fleet, "verdict": worst(verdicts)})

    def _has(self, body: TargetBody) -> bool:
        return (
            self.state in {None, body.verdict}
            and (self.model is None or self.model in body.vllm.models)
            and all(body.labels.get(name) == value for name, value in self.labels.items())
        )
