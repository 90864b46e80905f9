"""Table of targets: ``python -m tests.limits [--quick] [--strategies] [--rules] [PART ...]``.

With ``--rules`` the table of the rules in place of that of the targets: what each of them saves.
"""

from __future__ import annotations

import argparse
import sys

from tests.limits.report import TARGETS, measure, strategies, table
from tests.limits.rules import rules_table


def main() -> int:
    """Print the tables; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.limits", description="Table of targets.")
    parser.add_argument("--quick", action="store_true", help="measure the small sample")
    parser.add_argument("--strategies", action="store_true", help="print the table of plain strategies too")
    parser.add_argument("--rules", action="store_true", help="print what each rule saves")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"all of these without: {', '.join(TARGETS)}"
    )
    chosen = parser.parse_args()
    if unknown := {*chosen.parts} - TARGETS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if chosen.rules:
        print(rules_table(chosen.parts or [*TARGETS], chosen.quick))
        return 0
    rows = measure(chosen.quick, chosen.parts or [*TARGETS])
    print(table(rows))
    if chosen.strategies:
        print()
        print(strategies(chosen.quick))
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
