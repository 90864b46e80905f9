"""Table of targets: ``python -m tests.limits [--quick] [--strategies]``."""

from __future__ import annotations

import sys

from tests.limits.report import measure, strategies, table

QUICK = "--quick" in sys.argv
rows = measure(QUICK)
print(table(rows))
if "--strategies" in sys.argv:
    print()
    print(strategies(QUICK))
sys.exit(0 if all(row.met for row in rows) else 1)
