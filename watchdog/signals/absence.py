"""Why a signal has no value now, in words for people."""

from collections.abc import Callable

from watchdog.facts.declared import DECLARED
from watchdog.model import Lookup
from watchdog.signals.catalogue import compared_signal, metrics_of
from watchdog.signals.past import BASELINE


def why_unknown(name: str, lookup: Lookup, is_on_page: Callable[[str], bool]) -> str:
    """The likeliest reason why the signal is unknown; `is_on_page` answers whether the newest page has a metric.

    Raises:
        KeyError: for a name that is no signal.
    """
    compared = compared_signal(name)
    if compared is not None and lookup(compared[0]) is not None:
        alike = " under a like load" if compared[1] == BASELINE else ""
        return f"no calm stretch of the past{alike} is known yet"
    if name in DECLARED:
        return "not known of this server"
    metrics = metrics_of(name)
    lacking = sorted(metric for metric in metrics if not is_on_page(metric))
    if lacking:
        return f"the page has no {', '.join(lacking)}"
    return "the page does not say" if any(one.endswith("_info") for one in metrics) else _too_little(lookup)


def _too_little(lookup: Lookup) -> str:
    seconds, seen = lookup("window_seconds"), lookup("seconds_seen")
    if seconds:
        return f"nothing or too little was observed in the last {seconds:.0f} s"
    return f"seen for {seen:.0f} s only" if seen else "seen on one page only"
