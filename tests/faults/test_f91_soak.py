"""F91: cycles without end, with targets and models that come and go; `make soak` runs twenty times as many."""

from tests.soak import live

CYCLES = 480
SAMPLED_EVERY = 80


def test_f91_nothing_that_a_cycle_takes_is_kept() -> None:
    samples = list(live(CYCLES, SAMPLED_EVERY))
    warm = samples[len(samples) // 2 :]
    assert {each.files for each in warm} == {warm[0].files}
    assert {each.threads for each in warm} == {warm[0].threads}
    # Histories breathe as targets come and go; what leaks grows by thousands of objects a model or a target.
    assert max(each.objects for each in warm) < 1.25 * min(each.objects for each in warm)
