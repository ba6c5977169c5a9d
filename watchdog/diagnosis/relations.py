"""How incidents of one moment stand to each other: which explains which, and which of them leads."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from watchdog.model import SEVERITY_RANK, Incident, Key, Severity
from watchdog.rule.rule_set import RuleSet


def explains(rules: RuleSet, cause: Key, effect: Key) -> bool:
    """Whether a rule's firing on one subject explains another's: of one engine, of all, or of the model's."""
    rule = rules.find(cause.rule)
    if rule is None or effect.rule not in rule.explains or cause.target != effect.target:
        return False
    of_the_model = not cause.engine and cause.model_name == effect.model_name
    return _is_wide(cause) or _is_wide(effect) or of_the_model or cause[2:] == effect[2:]


def is_explained_by(rules: RuleSet, effect: Incident, cause: Incident) -> bool:
    """Whether one incident is a symptom of another.

    An info incident explains info only: it cannot lead, so it must not take the lead from what people feel.
    """
    if cause.severity is Severity.INFO and effect.severity is not Severity.INFO:
        return False
    # What cannot be seen now is explained by why it cannot: a target that is down, a page without series.
    unseen = effect.unknown and not cause.unknown and _is_wide(cause.key) and not _is_wide(effect.key)
    return unseen or explains(rules, cause.key, effect.key)


def related(
    firing: Sequence[Incident],
    rules: RuleSet,
    is_too_late: Callable[[Incident, Incident], bool] = lambda _effect, _cause: False,
) -> list[Incident]:
    """The firing incidents with what each explains and is explained by among them.

    `is_too_late` is whether the first of two began too long after the second was over to be a symptom of it.
    """

    def follows(effect: Incident, cause: Incident) -> bool:
        return is_explained_by(rules, effect, cause) and not is_too_late(effect, cause)

    by_engine: dict[tuple[str, ...], list[Incident]] = {}
    for incident in firing:
        by_engine.setdefault(incident.key[2:], []).append(incident)
    wide = by_engine.get(("", ""), [])
    result = []
    for incident in firing:
        # Engines explain nothing of each other, so each need not be held against all.
        of_the_model = by_engine.get((incident.key.model_name, ""), [])
        near = [*wide, *of_the_model, *by_engine[incident.key[2:]]] if incident.key.engine else firing
        symptoms = {other.key.rule for other in near if follows(other, incident)}
        causes = {other.key.rule for other in near if follows(incident, other)}
        result.append(with_relations(incident, symptoms, causes))
    return result


def with_relations(incident: Incident, symptoms: Collection[str], causes: Collection[str]) -> Incident:
    """The incident with the rules that it explains, and with those that explain it."""
    explained, explained_by = tuple(sorted(symptoms)), tuple(sorted(causes))
    if (incident.symptoms, incident.explained_by) == (explained, explained_by):
        return incident
    return replace(incident, symptoms=explained, explained_by=explained_by)


def lead_of(firing: Sequence[Incident], over: Collection[Key] = ()) -> Key | None:
    """The unexplained cause of the worst severity, then the one that explains most, then the oldest.

    What holds comes before what has cleared, and before what was `over` when it was last known. Where all that fires
    is explained by what has just ended, the same order finds what is left to show.
    None where nothing of warning or above fires.
    """
    grave = [one for one in firing if one.severity is not Severity.INFO]
    candidates = [one for one in grave if not one.explained_by] or grave
    if not candidates:
        return None
    return min(
        candidates,
        key=lambda one: (
            one.is_cleared or one.key in over,
            SEVERITY_RANK[one.severity],
            -len(one.symptoms),
            one.firing_since or 0.0,
            one.key,
        ),
    ).key


def _is_wide(key: Key) -> bool:
    return not (key.model_name or key.engine)
