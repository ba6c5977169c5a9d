"""Which of a rule's remedies are worth acting on for this server, this version and this load."""

from collections.abc import Iterator, Mapping

from watchdog.facts.capacity import is_quantised
from watchdog.facts.flags import Flag, Kind, all_flags, find_flag, own_flag
from watchdog.facts.launch import (
    ServerContext,
    amount,
    builds,
    default_value,
    given_values,
    is_on,
    is_set,
    present_value,
    same_value,
)
from watchdog.facts.version import Engine, Version, version
from watchdog.language.template import VALUE, render_text
from watchdog.model import NO_LABELS, Lookup, Remedy, Truth
from watchdog.remedy.order import KV_CACHE_TYPE, MEMORY_SHARE
from watchdog.remedy.value import GREATEST_SHARE, LEAST_SHARE, offered_value
from watchdog.rule.rule import Direction, RemedyRule, Rule, is_offered

# Flags that fix the pool's size, so that the share of memory no longer decides it.
POOL_SIZES = ("--num-gpu-blocks-override", "--kv-cache-memory-bytes")
# A share this high is raised only to a value that was worked out, and only by a step that is worth a restart.
HIGH_SHARE, LEAST_SHARE_STEP = 0.92, 0.02


def offer(
    rule: Rule, lookup: Lookup, context: ServerContext, texts: Mapping[str, str] = NO_LABELS
) -> tuple[tuple[Remedy, ...], tuple[str, ...]]:
    """The rule's remedies for this server, in the rule's order, and what will not help.

    `texts` are what a remedy may quote beside numbers, as a cause may.

    Left out is a remedy whose conditions do not hold, whose value is not known, and whose flag this server's
    version does not have, has so by default or has set so already. Where the version is not known well enough
    to tell, the action says from which version on the flag is there. Of a group the first is offered that is not
    left out.
    """
    found: list[Remedy] = []
    served: set[int | None] = set()
    for remedy in rule.remedies:
        if remedy.group not in served and (one := _offered(remedy, lookup, context, texts)):
            found.append(one)
            served |= {remedy.group} - {None}
    return tuple(found), (*rule.unhelpful, *_pointless(rule, context))


def _offered(
    remedy: RemedyRule, lookup: Lookup, context: ServerContext, texts: Mapping[str, str]
) -> Remedy | None:
    if not is_offered(remedy, lookup):
        return None
    value = offered_value(remedy, lookup, context)
    if value is None and any(
        VALUE in text.fields for text in (remedy.action, remedy.why, remedy.price) if text
    ):
        return None
    action = render_text(remedy.action, lookup, value, texts)
    flag = _flag(remedy)
    if not action or (flag is not None and _is_moot(flag, remedy, value, context)):
        return None
    condition = _condition(remedy, context)
    if condition is None:
        return None
    return Remedy(
        action=_with_condition(action, condition),
        flag=remedy.flag,
        value=value if remedy.flag else None,
        why=render_text(remedy.why, lookup, value, texts),
        price=render_text(remedy.price, lookup, value, texts) if remedy.price else "",
        direction=_direction(remedy, value, context),
        lasting=remedy.flag is not None if remedy.lasting is None else remedy.lasting,
    )


def _flag(remedy: RemedyRule) -> Flag | None:
    return find_flag(remedy.flag) if remedy.flag else None


def _condition(remedy: RemedyRule, context: ServerContext) -> str | None:
    """Empty where every version the server may be can use it, None where none can, else what it hangs on."""
    key = (remedy.flag, remedy.first_version, remedy.last_version)
    if key not in context.usable:
        context.usable[key] = _worked_out(remedy, context)
    return context.usable[key]


def _worked_out(remedy: RemedyRule, context: ServerContext) -> str | None:
    possible = builds(context)
    truths = {_is_usable(remedy, build, context) for build in possible}
    if truths == {Truth.YES}:
        return ""
    if truths == {Truth.NO}:
        return None
    oldest, newest = min(possible)[0], max(possible)[0]
    named = " and ".join(_named_ends(remedy, oldest, newest))
    seen = ", ".join(_seen_ends(remedy, oldest, newest))
    if named and not seen:
        return f"if your version is {named}"
    return f"if your version has it ({seen})" if seen else "if your version has it"


def _named_ends(remedy: RemedyRule, oldest: Version, newest: Version) -> Iterator[str]:
    """The ends a rule sets itself, where the versions the server may be lie on both sides."""
    if remedy.first_version and oldest < version(remedy.first_version):
        yield f"{remedy.first_version} or later"
    if remedy.last_version and newest > version(remedy.last_version):
        yield f"{remedy.last_version} or earlier"


def _seen_ends(remedy: RemedyRule, oldest: Version, newest: Version) -> Iterator[str]:
    """Where among the versions the server may be the flag comes, becomes the default, and goes."""
    flag = _flag(remedy)
    if flag is None:
        return
    if flag.since and oldest < flag.since:
        yield f"since {flag.since}"
    if flag.kind is Kind.SWITCH:
        on_from = (row.versions.low for row in flag.defaults if row.value == "on")
        yield from (f"on by default from {low}" for low in on_from if low and newest >= low)
    ceases = flag.gone_in or flag.useless_from
    if ceases and newest >= ceases:
        yield f"gone in {flag.gone_in}" if flag.gone_in else f"of no use from {ceases}"


def _is_usable(remedy: RemedyRule, build: tuple[Version, Engine], context: ServerContext) -> Truth:
    running, engine = build
    if remedy.first_version and running < version(remedy.first_version):
        return Truth.NO
    if remedy.last_version and running > version(remedy.last_version):
        return Truth.NO
    if remedy.flag is None:
        return Truth.YES
    flag = _flag(remedy)
    if flag is None:
        return Truth.UNKNOWN
    is_switch = flag.kind is Kind.SWITCH and not flag.only_if_set
    if is_switch and is_on(own_flag(flag), running, engine, context) is (flag.negates is None):
        return Truth.NO
    return flag.presence(running, engine)


def _with_condition(action: str, condition: str) -> str:
    if not condition:
        return action
    bare = action.rstrip().removesuffix(".")
    return f"{bare}, {condition}" + ("." if action.rstrip().endswith(".") else "")


def _is_moot(flag: Flag, remedy: RemedyRule, value: str | None, context: ServerContext) -> bool:
    """Whether the remedy changes nothing, or cannot be, given what is set."""
    own = own_flag(flag)
    given = given_values(own, context)
    if flag.only_if_set and is_set(own, context) is False:
        return True
    if flag.once and given:
        return True
    if value is not None and any(same_value(value, each) for each in given or [default_value(own, context)]):
        return True
    if flag.name == KV_CACHE_TYPE and _is_fp8(value) and any(map(is_quantised, given)):
        return True
    if flag.name == MEMORY_SHARE and _share_is_moot(remedy, value, context):
        return True
    return not _moves(remedy, value, present_value(own, context)) or not _starts_with(flag, value, context)


def _is_fp8(value: str | None) -> bool:
    return value is None or value.strip().lower().startswith("fp8")


def _moves(remedy: RemedyRule, value: str | None, present: str | None) -> bool:
    """Whether the value lies where the remedy says it goes; yes where either is not known as a number."""
    goal, now = amount(value), amount(present)
    if goal is None or now is None or now < 0:  # -1 lets vLLM choose
        return True
    if remedy.direction is Direction.RAISE:
        return goal > now
    return goal < now if remedy.direction is Direction.LOWER else goal != now


def _share_is_moot(remedy: RemedyRule, value: str | None, context: ServerContext) -> bool:
    goal, now = amount(value), amount(present_value(all_flags()[MEMORY_SHARE], context))
    if goal is not None and not LEAST_SHARE <= goal <= GREATEST_SHARE:
        return True
    if remedy.direction is Direction.LOWER or (goal is not None and now is not None and goal < now):
        return False
    if _pool_size_given(context):
        return True
    if now is None:
        return False
    return now >= HIGH_SHARE if goal is None else goal < now + LEAST_SHARE_STEP - 1e-9


def _pool_size_given(context: ServerContext) -> str | None:
    return next((name for name in POOL_SIZES if is_set(all_flags()[name], context)), None)


def _pointless(rule: Rule, context: ServerContext) -> Iterator[str]:
    if any(remedy.flag == MEMORY_SHARE for remedy in rule.remedies) and (given := _pool_size_given(context)):
        yield f"A larger {MEMORY_SHARE} changes nothing while {given} fixes the KV cache size."


def _starts_with(flag: Flag, value: str | None, context: ServerContext) -> bool:
    """Whether vLLM starts with it: a step takes a token of every request at least, and on V0 a prompt."""
    goal = amount(value)
    if flag.kind is not Kind.BUDGET or goal is None:
        return True
    requests = amount(present_value(all_flags()["--max-num-seqs"], context))
    if requests is not None and goal < requests:
        return False
    chunked = all_flags()["--enable-chunked-prefill"]
    whole = any(
        engine == "v0" and not is_on(chunked, running, engine, context) for running, engine in builds(context)
    )
    return not (whole and context.max_model_len is not None and goal < context.max_model_len)


def _direction(remedy: RemedyRule, value: str | None, context: ServerContext) -> str | None:
    flag = _flag(remedy)
    if flag is None:
        return remedy.direction
    if flag.kind is Kind.SWITCH or (flag.only_if_set and value is None):
        return "off" if flag.negates or flag.only_if_set else "on"
    if remedy.direction in {Direction.RAISE, Direction.LOWER}:
        return remedy.direction
    goal, now = amount(value), amount(present_value(own_flag(flag), context))
    if goal is not None and now is not None and goal != now:
        return "raise" if goal > now else "lower"
    return "set" if value is not None else None
