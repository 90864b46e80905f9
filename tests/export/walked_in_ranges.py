"""Virtual time of an export of a long list, as one walk and in ranges.

``python -m tests.export.walked_in_ranges`` prints the table of the documentation.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import frozen

from chainapi.export import export
from chainapi.testing import run
from tests.ledger import ADDRESS, Ledger
from tests.sessions import reaching

__all__ = ["Walked", "walked"]

PAGE = 10  # rows
LATENCY = 0.3  # seconds of a request


@frozen
class Walked:
    """Seconds of an export, its requests, and its file."""

    seconds: float
    requests: int
    content: bytes


def walked(numbers: list[int], ranges: int | str | None) -> Walked:
    """Export the transfers of an address, one list with these block numbers."""
    ledger = Ledger(numbers, latency=LATENCY)

    async def scenario(path: Path) -> float:
        async with reaching(ledger) as session:
            began = ledger.now
            await export(
                session.data.evm.erc20_transactions, [(43114, ADDRESS)], path, page_size=PAGE, ranges=ranges
            )
            return ledger.now - began

    with TemporaryDirectory() as folder:
        path = Path(folder) / "transfers.jsonl"
        seconds = run(scenario(path))
        return Walked(seconds, len(ledger.requests), path.read_bytes())


def main() -> None:
    """Print seconds and requests of lists of 400 pages."""
    rows = 400 * PAGE
    even = [one * 50 for one in range(rows)]
    rising = [int((one / rows) ** 0.5 * 200_000) for one in range(rows)]  # most blocks are new ones
    for ranges in (None, 8, 32, 128):
        one, other = walked(even, ranges), walked(rising, ranges)
        print(
            f"| {ranges or 'one walk'} | {one.seconds:.0f} s, {one.requests} | {other.seconds:.0f} s, "
            f"{other.requests} |"
        )


if __name__ == "__main__":
    main()
