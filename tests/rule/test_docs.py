"""The pages made from rules and catalogue are in step with them, and links to them lead somewhere."""

from tests.places import DOCS
from tests.watching import shipped_rules
from watchdog.rule.docs import causes_document, signals_document
from watchdog.signals.catalogue import CATALOGUE


def test_the_causes_page_is_in_step_with_the_rules() -> None:
    assert (DOCS / "causes.md").read_text(encoding="utf-8") == causes_document(shipped_rules()), (
        "run `make docs`"
    )


def test_the_signals_page_is_in_step_with_the_catalogue() -> None:
    assert (DOCS / "signals.md").read_text(encoding="utf-8") == signals_document(), "run `make docs`"


def test_every_runbook_link_leads_to_its_cause() -> None:
    headings = {
        line.removeprefix("## ")
        for line in (DOCS / "causes.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    }
    assert headings == {rule.id for rule in shipped_rules().rules}


def test_every_signal_has_a_place() -> None:
    text = signals_document()
    assert all(f"## {name}\n" in text for name in CATALOGUE)
