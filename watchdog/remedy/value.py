"""The value of a remedy's flag, computed and then rounded to what people would type."""

from math import ceil, floor

from watchdog.facts.flags import TOKEN_BUDGETS, Flag, Kind, all_flags, find_flag, lever
from watchdog.facts.launch import ServerContext, amount, present_value
from watchdog.model import Lookup
from watchdog.rule.rule import Direction, RemedyRule, is_exact, remedy_value

# Above it start-up and peaks run out of memory; below the least one the prefix cache starves.
GREATEST_SHARE, LEAST_SHARE = 0.95, 0.7
_DEFAULT_FORMAT, _SMALL_FORMAT = "{value:.0f}", "{value:.2f}"


def offered_value(remedy: RemedyRule, lookup: Lookup, context: ServerContext) -> str | None:
    """The value for a remedy's flag as people type it; None where it has none or it is not known exactly."""
    flag = find_flag(remedy.flag) if remedy.flag else None
    if remedy.suggest is None or flag is None:
        return remedy_value(remedy, lookup)
    number = remedy.suggest.number(lookup)
    if number is None or not is_exact(number):
        return None
    rounded = _rounded(number, flag.kind, remedy.direction)
    if rounded is None:
        return None
    # Whole numbers, the usual format, would leave nothing of a share.
    is_small = flag.kind in {Kind.SHARE, Kind.FRACTION} and remedy.suggest_format == _DEFAULT_FORMAT
    written = _SMALL_FORMAT if is_small else remedy.suggest_format
    return written.format(value=_within(rounded, flag, context))


def _rounded(number: float, kind: Kind, direction: Direction | None) -> float | None:
    """The number as people type it; None for one that no server should get."""
    match kind:
        case Kind.SHARE:
            rounded = min(round(number, 2), GREATEST_SHARE)
            return rounded if rounded >= LEAST_SHARE else None
        case Kind.FRACTION:
            rounded = round(number, 2)
        case Kind.LENGTH:
            step = 256 if number <= 8192 else 1024
            rounded = ceil(number / step) * step
        case Kind.BUDGET:
            rounded = _budget(number, direction)
        case Kind.GIB:
            rounded = ceil(number - 1e-9)
        case Kind.COUNT:
            rounded = max(floor(number + 1e-9), 1)
        case Kind.TEXT | Kind.SWITCH:
            return number
    return float(rounded) if number > 0 and rounded > 0 else None


def _budget(number: float, direction: Direction | None) -> float:
    if direction is Direction.LOWER:
        return float(max((step for step in TOKEN_BUDGETS if step <= number), default=TOKEN_BUDGETS[0]))
    return float(next((step for step in TOKEN_BUDGETS if step >= number), TOKEN_BUDGETS[-1]))


def _within(number: float, flag: Flag, context: ServerContext) -> float:
    """A batch has at most as many requests as its step takes tokens."""
    if lever(flag.name) != "--max-num-seqs":
        return number
    budget = amount(present_value(all_flags()["--max-num-batched-tokens"], context))
    return number if budget is None or budget <= 0 else min(number, budget)
