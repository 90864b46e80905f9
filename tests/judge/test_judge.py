"""The judge: its digests are the same for the same behavior, and differ for another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chainapi._api import catalogue
from tests.judge.bodies import ROUTES
from tests.judge.compare import ROOT, Digests, check_out, differences, main
from tests.judge.faults import FAULTS, copy, found_at
from tests.judge.programs import PROGRAMS, READERS
from tests.judge.run import rows_of, trace_of

SEEDS = range(25)


def test_a_seed_has_one_trace() -> None:
    """A seed gives the same trace each time, and 25 seeds have each kind of program in them."""
    traces = {seed: trace_of(seed).lines for seed in SEEDS}
    assert [seed for seed in SEEDS if trace_of(seed).lines != traces[seed]] == []
    lines = [json.loads(line) for trace in traces.values() for line in trace]
    assert {line[1] for line in lines if line[0] == "program"} == {kind.__name__ for kind, *_ in PROGRAMS}
    assert {*READERS, "range", "merged", "followed", "got", "cancelled", "error"} <= {
        line[0] for line in lines
    }
    assert not [line for line in lines if line[0] == "endless"]


def test_each_route_has_golden_rows() -> None:
    """Every route has bodies that it decodes, bodies that it refuses, and requests."""
    assert set(ROUTES) == {*catalogue.ROUTES, *catalogue.WRITES}
    failures = []
    for name in ROUTES:
        kinds = {json.loads(line)[0] for line in rows_of(name, range(1)).lines}
        if "raised" in kinds or not {"row", "sent"} <= kinds:
            failures.append(f"{name}: {kinds}")
    assert not failures


@pytest.mark.adapter
def test_a_clone_without_the_reference_says_so(tmp_path: Path) -> None:
    """In a shallow clone the comparison fails, and says what to do."""
    with pytest.raises(SystemExit, match="not in this clone: run `git fetch --unshallow`"):
        check_out("0" * 40, tmp_path)


@pytest.mark.sample
@pytest.mark.proof
@pytest.mark.parametrize("seed", ["1", "2"])
def test_digests_do_not_depend_on_the_process(seed: str) -> None:
    """Digests are the same in another process, whatever its hashes of strings are."""
    with Digests(ROOT, "60", PYTHONHASHSEED=seed) as digests:
        assert dict(digests) == {str(number): trace_of(number).digest() for number in range(60)}


@pytest.mark.proof
def test_the_package_behaves_as_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    """The package behaves as the reference commit in 20,000 programs, and makes the same rows."""
    main(["--seeds", "20000", "--rows", "20"])
    assert "the same as" in capsys.readouterr().out


@pytest.mark.proof
def test_each_fault_is_found(tmp_path: Path) -> None:
    """The judge finds each of the faults within 2,000 seeds, and none in an unchanged copy."""
    packages = [copy(tmp_path / name) for name in ("one", "two")]
    assert list(differences(packages[0], packages[1], "100")) == []
    with Digests(packages[0], "2000") as digests:
        expected = dict(digests)
    found = found_at(packages, expected)
    assert len(found) >= 20
    assert [name for name in FAULTS if found[name] is None] == []
