"""docs/settings.md made from the settings model: `python -m watchdog.settings.page > docs/settings.md`."""

import sys
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from watchdog.schema import bare, is_duration, is_model, key_of
from watchdog.settings.model import Settings

INTRODUCTION = """\
# Settings

This page is made from the settings model by `python -m watchdog.settings.page`; a test keeps it in step.

A value on the command line wins over the environment, the environment over the YAML file, the file over the default.
Every fault is reported at once, with its place and the nearest known name; nothing starts until all are mended.
`vllm-watchdog config` prints the settings in force, without secrets.

**YAML.** `--config FILE`, or the file that `WATCHDOG_CONFIG` names. One document, no aliases, no key twice,
at most 1 MiB. A text that some reader of YAML takes for something else (`012`, `on`, `1:30`) stands in quotes;
a key with nothing after it means its default. The excerpt below a fault shows keys and numbers, never another value.

**Durations** are seconds, or a number with units: `90`, `0.5s`, `250ms`, `1h30m`, `1d`, `2w`; the same in rule files.

**Environment.** `WATCHDOG_` and the key in capitals, with two underscores for each level: `WATCHDOG_WEB__PORT=9847`.
Lists are JSON or items with commas between them (`WATCHDOG_TARGETS=http://a:8000,http://b:8000`),
mappings are JSON or `key=value` items. `WATCHDOG_X_FILE` gives X from a file.
A `WATCHDOG_` variable that is no setting gives a warning with the nearest name, and does not stop the start:
Kubernetes and Docker put variables of their own beside a service called `watchdog`.

**Secrets** are files, read again at each use, so that they can be rotated. User info in a URL is taken out of it
before anything can print it; values in a URL's query, and the path of a webhook, are never printed.

**Lists** are taken whole from one place: `--target` replaces the targets of the file.

```yaml
targets:
  - http://vllm-a:8000            # named vllm-a:8000, path /metrics
  - name: chat
    url: https://chat.example:8443/metrics
    bearer_token_file: /run/secrets/chat-token
    slo: {ttft_p95_seconds: 2, itl_p99_seconds: 0.1}
    vllm_args: --max-num-seqs 256 --kv-cache-dtype fp8
discovery:
  file_sd:
    - files: [/etc/prometheus/vllm/*.yaml]
  kubernetes:
    - selector: app=vllm
maintenance:
  - {name: kernel, targets: ["chat*"], from: 2026-12-05T22:00, to: 2026-12-06T02:00, zone: Europe/Berlin}
  - {targets: ["batch-*"], days: [saturday, sunday], hours: 22:00-06:00}
prometheus:
  - url: http://prometheus:9090     # every vLLM server that it scrapes
    match: job="vllm"
alertmanager:
  urls: [http://alertmanager-0:9093, http://alertmanager-1:9093]
state:
  directory: /var/lib/vllm-watchdog
```
"""


def page() -> str:
    """The whole page as Markdown."""
    return "\n".join([INTRODUCTION, *_section("", Settings, {})])


def _section(prefix: str, model: type[BaseModel], told: dict[type[BaseModel], str]) -> Iterator[str]:
    """The keys of one model as a table, then each model below it; `told` is where models stand already."""
    if model in told:
        yield f"## `{prefix}`\n\n{_sentence(model)} The same keys as `{told[model]}`.\n"
        return
    told[model] = prefix
    if prefix:
        yield f"## `{prefix}`\n\n{_sentence(model)}\n"
    leaves = [(name, field) for name, field in model.model_fields.items() if _model_of(field) is None]
    # What a thing is called and where it is comes first, wherever the model has it from.
    leaves.sort(key=lambda leaf: leaf[0] not in {"name", "url"})
    if leaves:
        yield "| key | type | default | what it is |"
        yield "| --- | --- | --- | --- |"
        yield from (_row(name, field) for name, field in leaves)
        yield ""
    for name, field in model.model_fields.items():
        below = _model_of(field)
        if below is not None:
            kind = get_origin(bare(field.annotation))
            suffix = {list: "[]", dict: ".<id>"}.get(kind, "") if kind else ""
            key = f"{prefix}.{key_of(name, field)}{suffix}".lstrip(".")
            yield from _section(key, below, told)


def _row(name: str, field: FieldInfo) -> str:
    text = (field.description or "").replace("|", "\\|")
    return f"| `{key_of(name, field)}` | {_type(field.annotation)} | {_default(field)} | {text} |"


def _sentence(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip()


def _model_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a section, or of the items of a list or mapping of sections."""
    kind = bare(field.annotation)
    if get_origin(kind) in {list, dict}:
        kind = bare(get_args(kind)[-1])
    return kind if is_model(kind) else None


def _type(annotation: Any) -> str:
    if is_duration(annotation):
        return "duration"
    kind = bare(annotation)
    origin = get_origin(kind)
    if origin is list:
        return f"list of {_type(get_args(kind)[0])}"
    if origin is dict:
        return f"mapping to {_type(get_args(kind)[1])}"
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if issubclass(kind, StrEnum):
        return ", ".join(f"`{value}`" for value in kind)
    words = {
        str: "text",
        int: "whole number",
        float: "number",
        bool: "true or false",
        Path: "path",
        datetime: "date and time",
    }
    return words.get(kind, "secret" if kind is SecretStr else kind.__name__)


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined:
        return "must be given"
    if default is None or default in ("", [], {}):
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, list):
        return ", ".join(f"`{each}`" for each in default)
    if isinstance(default, dict):
        return ", ".join(f"`{key}: {value}`" for key, value in default.items())
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


if __name__ == "__main__":
    sys.stdout.write(page())
