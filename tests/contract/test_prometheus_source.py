"""The same pages, from a recording and from a real Prometheus or VictoriaMetrics: the same story."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import command
from tests.contract.past import kept_by, scrapes_of
from tests.contract.programs import ROOT, Prometheus, VictoriaMetrics
from tests.places import RECORDINGS
from tests.waiting import until
from watchdog.cli import prometheus
from watchdog.errors import SourceError
from watchdog.http.endpoint import Endpoint
from watchdog.model import Scrape, Target
from watchdog.replay.demo_server import ReplayServer
from watchdog.replay.replay import Replay, replay
from watchdog.rule.in_force import load_rules
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.prometheus import WINDOW_SECONDS, PrometheusSource
from watchdog.scrape.recording import read
from watchdog.scrape.samples import NOT_SCRAPED
from watchdog.settings.model import RuleSettings
from watchdog.settings.prometheus import PrometheusSettings

OUR_RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
END = 1_700_000_000.0
PACE_SECONDS = 5.0
NAMES = ("kv-pool-exhausted", "restart", "dp-imbalance")


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[Scrape]]:
    return {name: scrapes_of(name, PACE_SECONDS, END) for name in NAMES}


@pytest.fixture(scope="module", params=["prometheus", "victoria-metrics"])
def url(
    request: pytest.FixtureRequest,
    recorded: dict[str, list[Scrape]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    with kept_by(request.param, tmp_path_factory.mktemp("store"), recorded) as kept:
        yield kept


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return load_rules(RuleSettings())


@pytest.fixture(scope="module")
def stories(recorded: dict[str, list[Scrape]], rules: RuleSet) -> dict[str, Replay]:
    return {name: replay(Target(name, ""), scrapes, rules) for name, scrapes in recorded.items()}


def test_the_story_is_that_of_the_recording(
    url: str, recorded: dict[str, list[Scrape]], stories: dict[str, Replay], rules: RuleSet
) -> None:
    source = PrometheusSource(Endpoint(url))
    fleet = source.fleet(END, 3600)
    source.close()
    assert set(fleet.servers) == {f"{name}:8000" for name in NAMES}
    for name, scrapes in recorded.items():
        told = list(fleet.servers[f"{name}:8000"].scrapes())
        assert [each.at for each in told] == [each.at for each in scrapes]
        assert replay(Target(name, ""), told, rules).timeline == stories[name].timeline


def test_servers_are_followed_look_by_look_and_each_scrape_is_judged_once(
    url: str, stories: dict[str, Replay], rules: RuleSet
) -> None:
    moments = [END - 120, END - 60, END - 60, END, END + prometheus.STALE_SECONDS + 60]
    source = PrometheusSource(Endpoint(url), 'instance="kv-pool-exhausted:8000"')
    clock = iter(moments)
    followed = prometheus.Followed(source, PrometheusSettings(url=url), rules, lambda: next(clock))
    timeline = [at for at in stories["kv-pool-exhausted"].timeline if at.wall > moments[0] - WINDOW_SECONDS]
    for moment in moments[:-1]:
        [last] = followed.step().last
        so_far = [at for at in timeline if at.wall <= moment]
        assert (last.scrapes, last.verdict) == (len(so_far), so_far[-1].verdict)
    # What is scraped no more is no server of now.
    with pytest.raises(SourceError, match="no vLLM server is scraped"):
        followed.step()
    source.close()


def test_a_moment_in_the_past_is_judged(
    url: str, stories: dict[str, Replay], capsys: pytest.CaptureFixture[str]
) -> None:
    for moment in (stories["kv-pool-exhausted"].timeline[at] for at in (8, -1)):
        words = (
            "--match",
            'instance="kv-pool-exhausted:8000"',
            "--at",
            f"{moment.wall:.3f}",
            "--format",
            "json",
        )
        ended = command(capsys, "diagnose", "--prometheus", url, *words)
        [target] = json.loads(ended.out)["targets"]
        lead = target["lead_key"] and target["lead_key"].split("/")[0]
        assert (target["verdict"], lead) == (moment.verdict, moment.lead)


def test_a_moment_at_which_nothing_was_scraped_is_told(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, "diagnose", "--prometheus", url, "--at", str(END - 86400))
    assert ended.code == 2
    assert "no vLLM server was scraped in the 12m before 2023-11-13T22:13:20.000Z" in ended.err


def test_a_stretch_is_replayed_and_recorded_in_parts(
    url: str,
    stories: dict[str, Replay],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prometheus, "PART_SECONDS", 50.0)
    which = ("--match", 'instance=~"(kv-pool-exhausted|restart):8000"')
    words = ("--prometheus", url, *which, "--from", str(END - 150), "--to", str(END))
    ended = command(capsys, "record", *words, "-o", tmp_path / "incident")
    assert ended.code == 0, ended.err
    told = [
        json.loads(line) for line in command(capsys, "replay", *words, "--format", "json").out.splitlines()
    ]
    assert [each["name"] for each in told] == ["kv-pool-exhausted:8000", "restart:8000"]
    for each in told:
        file = tmp_path / "incident" / f"{each['name']}.jsonl.xz"
        again = json.loads(command(capsys, "replay", file, "--format", "json").out)
        assert again["timeline"] == each["timeline"]
        times = [at.wall for at in stories[each["name"].removesuffix(":8000")].timeline]
        assert [at["t"] for at in each["timeline"]] == [at for at in times if at >= END - 150]


def test_several_servers_do_not_go_into_one_file(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--prometheus", url, "--from", str(END - 20), "--to", str(END))
    ended = command(capsys, "record", *words, "-o", tmp_path / "incident.jsonl")
    assert ended.code == 2
    assert "name a folder, or one of them by --match" in ended.err


@pytest.mark.parametrize("is_victoria", [False, True])
def test_a_server_that_is_scraped_now_and_goes(is_victoria: bool, tmp_path: Path) -> None:
    _, scrapes = read(RECORDINGS / "healthy.jsonl.xz")
    with ReplayServer(list(scrapes)) as server:
        scraped = server.url.removeprefix("http://").removesuffix("/metrics")
        folder = tmp_path / "store"
        with (
            VictoriaMetrics(folder, scraped)
            if is_victoria
            else Prometheus(folder, scraped, OUR_RULES) as store
        ):
            source = PrometheusSource(Endpoint(store.url))
            until(lambda: any(b"vllm:num_requests_running{" in each.body for each in seen(source)))
            server.close()
            until(lambda: seen(source)[-1].failure == NOT_SCRAPED)
            source.close()


def seen(source: PrometheusSource) -> list[Scrape]:
    servers = source.fleet(time.time(), 60).servers.values()
    return [scrape for server in servers for scrape in server.scrapes()]
