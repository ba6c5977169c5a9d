"""What bounds throughput: the limit that the rule names which holds. Nothing here judges a second time."""

from collections.abc import Mapping, Sequence

from watchdog.diagnosis.relations import explains
from watchdog.model import Incident, Key, Limit, Standing, State, Subject
from watchdog.rule.rule_set import RuleSet


class Limits:
    """The limits that the rules in force name."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._by_rule = {rule.id: rule.limit for rule in rules.rules if rule.limit is not None}

    def binding(self, standing: Standing) -> Mapping[Subject, Limit]:
        """The limit of each engine of which a rule that holds names one, and of the target where that is named.

        It is that of the lead, else of the incident that holds now and that no other of them explains; what
        fires comes before what is pending.
        """
        of_subject: dict[Subject, list[Incident]] = {}
        for incident in standing.incidents:
            if incident.key.rule in self._by_rule and incident.state is not State.RESOLVED:
                of_subject.setdefault(Subject(*incident.key[1:]), []).append(incident)
        # The order of the incidents is that of their weight.
        places = {incident.key: place for place, incident in enumerate(standing.incidents)}
        found = {}
        for subject, own in of_subject.items():
            whole = Subject(subject.target)
            wide = [] if subject == whole else of_subject.get(whole, [])
            near = sorted([*own, *wide], key=lambda one: places[one.key])
            if (chosen := self._chosen(near, standing.lead)) is not None:
                found[subject] = self._by_rule[chosen.key.rule]
        return found

    def _chosen(self, near: Sequence[Incident], lead: Key | None) -> Incident | None:
        holding = [one for one in near if not (one.is_cleared or one.unknown)]
        roots = (
            one for one in holding if not any(explains(self._rules, other.key, one.key) for other in holding)
        )
        return next((one for one in near if one.key == lead), None) or next(roots, None)
