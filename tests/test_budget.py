"""Budgets: the package, its tests and its docs do not grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import budget

pytestmark = pytest.mark.adapter  # a page is measured over a real socket


def test_no_figure_rises() -> None:
    """Each figure is recorded, and none is above the recorded one."""
    measured, recorded = budget.measured(), budget.recorded()
    assert measured.keys() == recorded.keys()
    risen = {name: (value, recorded[name]) for name, value in measured.items() if value > recorded[name]}
    assert risen == {}, "measured and allowed figures: make room, or say in tests/budget.toml why one rises"


def test_a_module_belongs_to_one_room() -> None:
    """A module that no room names is an error that says what to do."""
    with pytest.raises(LookupError, match=r"newcomer is in the rooms \[\]: name it in one of them"):
        budget.room_of("newcomer")


def test_code_and_words_are_counted_as_their_readers_see_them(tmp_path: Path) -> None:
    """Comments and docstrings are no code; code blocks, link targets and comments are no words."""
    module = tmp_path / "module.py"
    module.write_text(
        '"""What it is.\n\nMore.\n"""\n\n# why\nvalue = [\n    1,\n]\n\n\ndef f():\n    """Say."""\n'
    )
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n<!-- not seen -->\n| a | [link](https://x.test/y) |\n```sh\nrun it\n```\nEnd.\n"
    )
    assert (budget.code_lines(module), budget.lines_of(module)) == (4, 13)
    assert budget.words_of(page) == 5
