"""The pages made from rules and catalogue are in step with them, and links to them lead somewhere."""

from tests.places import DOCS
from tests.watching import shipped_rules
from watchdog.facts.declared import DECLARED
from watchdog.rule.docs import causes_document, signals_document
from watchdog.rule.reference import reference_document
from watchdog.signals.catalogue import CATALOGUE


def test_the_causes_page_is_in_step_with_the_rules() -> None:
    assert (DOCS / "causes.md").read_text(encoding="utf-8") == causes_document(shipped_rules()), (
        "run `make docs`"
    )


def test_the_signals_page_is_in_step_with_the_catalogue() -> None:
    assert (DOCS / "signals.md").read_text(encoding="utf-8") == signals_document(), "run `make docs`"


def test_the_page_of_keys_is_in_step_with_the_models() -> None:
    assert (DOCS / "rule-keys.md").read_text(encoding="utf-8") == reference_document(), "run `make docs`"


def test_every_runbook_link_leads_to_its_cause() -> None:
    headings = {
        line.removeprefix("## ")
        for line in (DOCS / "causes.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    }
    assert headings == {rule.id for rule in shipped_rules().rules}


def test_every_signal_has_a_place() -> None:
    text = signals_document()
    declared = {name for name in CATALOGUE if f"## {name}\n" in text}
    facts = {name for name in CATALOGUE if f"| `{name}` |" in text}
    assert declared | facts == set(CATALOGUE)
    assert facts == set(DECLARED)


def test_a_signal_is_shown_with_its_promql_or_with_the_reason_why_there_is_none() -> None:
    text = signals_document()
    for name, signal in CATALOGUE.items():
        if name in DECLARED:
            continue
        shown = text.partition(f"## {name}\n")[2].partition("\n## ")[0]
        query = signal.formula.query()
        if query is None:
            assert "\nNo PromQL: " in shown, name
            assert "```" not in shown, name
        else:
            assert f"```promql\n{query}\n```" in shown, name
    assert "vllm_watchdog_" not in text
