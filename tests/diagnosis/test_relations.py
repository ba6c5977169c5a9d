"""How incidents of one moment stand to each other: which of them leads."""

from tests.pagers import incident
from watchdog.diagnosis.relations import lead_of
from watchdog.model import Severity


def test_the_lead_is_the_gravest_then_the_widest_then_the_oldest() -> None:
    critical = incident("a", since=9.0)
    warning = incident("b", severity=Severity.WARNING, symptoms=("x", "y"))
    symptom = incident("c", explained_by=("a",))
    info = incident("d", severity=Severity.INFO)
    assert lead_of([warning, symptom, critical, info]) == critical.key
    wider = incident("e", since=99.0, symptoms=("x",))
    assert lead_of([critical, wider]) == wider.key
    older = incident("z", since=1.0)
    assert lead_of([critical, older]) == older.key
    assert lead_of([critical, incident("0", since=9.0)]) == incident("0").key


def test_what_is_explained_leads_only_where_nothing_else_does_and_info_never() -> None:
    symptom = incident("c", explained_by=("a",))
    assert lead_of([symptom, incident("b", severity=Severity.WARNING)]) == incident("b").key
    assert lead_of([symptom]) == symptom.key
    assert lead_of([incident("d", severity=Severity.INFO)]) is None
    assert lead_of([]) is None
