"""Replays that check forecasts: turns that a refused call would have had in time.

A run in virtual time can be replayed up to any moment, and then changed. So for each `QuotaWaitError` the
same job runs twice more, without any later call: once the call waits without a limit, behind all calls before
it, which wait as well, and once it comes again at its `retry_after`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from math import inf
from operator import add

from attrs import astuple, define

from chainapi.errors import QuotaWaitError
from tests.limits.runs import OVERDUE, Case, Client, Run, gate, play
from tests.limits.seam import Ask, Permit
from tests.limits.wild import Errand

__all__ = ["CheckedForecasts", "check_forecasts"]

EPSILON = 1e-3  # seconds
LIMIT = 1e5  # seconds


@define
class CheckedForecasts:
    """Results of checked forecasts: their number, and the wrong ones."""

    refused: int = 0
    checked: int = 0
    wrong: int = 0  # refused, although their turn would have been in time
    again: int = 0  # refused once more at their `retry_after`
    late: int = 0  # failed or sent later than `max_wait` allows
    soon: int = 0  # refused with a `retry_after` of less than a twentieth of a second

    def __add__(self, other: CheckedForecasts) -> CheckedForecasts:
        """Return both together."""
        return CheckedForecasts(*map(add, astuple(self), astuple(other)))

    def share(self) -> tuple[float, float]:
        """Return the shares of wrong refusals and of wrong times, in per cent."""
        return 100.0 * self.wrong / max(self.checked, 1), 100.0 * self.again / max(self.checked, 1)


class _Patient(Client):
    """Replay of a job in which call `number` and those before it wait without a limit."""

    def __init__(self, case: Case, first: Run, number: int) -> None:
        super().__init__(case)
        self.first, self.number, self.tries = first, number, first.attempts[number][1]
        self.until = first.turned_away[number][0]
        self.began, self.waited = -inf, inf

    async def run(self, number: int, errand: Errand) -> None:
        """Do one errand, unless it begins after the checked moment."""
        if self.loop.time() > self.until:
            return
        await super().run(number, errand)
        if number in self.outcome.finished and number == self.number and self.began > -inf:
            self.waited = self.outcome.finished[number] - self.began - self.trips[number]

    async def acquire(self, number: int, errand: Errand, tries: int) -> Permit:
        """Wait at the gate."""
        if number == self.number and tries == self.tries:
            self.began = self.loop.time()
            return await self.wait(number, errand, tries)
        if self.first.turned_away.get(number, (inf, 0.0))[0] < self.until:
            return await super().acquire(number, errand, tries)
        return await self.patiently(errand, again=tries > 0)

    async def patiently(self, errand: Errand, *, again: bool) -> Permit:
        """Wait at the gate without a limit."""
        return await self.gate.acquire(Ask(errand.route, errand.prior, errand.priority, again=again))

    async def wait(self, number: int, errand: Errand, tries: int) -> Permit:
        """Wait without a limit."""
        return await self.patiently(errand, again=tries > 0)


class _Repeating(_Patient):
    """Replay of a job in which call `number` comes again at its `retry_after`."""

    async def acquire(self, number: int, errand: Errand, tries: int) -> Permit:
        """Wait at the gate."""
        if number == self.number and tries == self.tries:
            self.began = self.loop.time()
            return await self.wait(number, errand, tries)
        if number == self.number and tries > self.tries:
            return await self.patiently(errand, again=True)
        return await Client.acquire(self, number, errand, tries)

    async def wait(self, number: int, errand: Errand, tries: int) -> Permit:
        """Wait until `retry_after`, then try once more."""
        try:
            return await Client.acquire(self, number, errand, tries)
        except QuotaWaitError as error:
            await asyncio.sleep(error.retry_after)
        return await Client.acquire(self, number, errand, tries)


def _play(kind: type[_Patient], case: Case, first: Run, number: int) -> float:
    """Return the wait of call `number` in a replay; inf if it is refused again."""
    played: list[_Patient] = []

    def build(case: Case) -> Client:
        played.append(kind(case, first, number))
        return played[0]

    play(case, build, LIMIT)
    return played[0].waited


def _check_one(case: Case, first: Run, number: int) -> CheckedForecasts:
    assert case.max_wait is not None
    when, after = first.turned_away[number]
    return CheckedForecasts(
        checked=1,
        wrong=_play(_Patient, case, first, number) <= case.max_wait - EPSILON,
        again=_play(_Repeating, case, first, number) == inf,
        late=when - first.attempts[number][0] > case.max_wait + OVERDUE,
        soon=after < 0.05,
    )


def check_forecasts(case: Case, most: int = 4) -> CheckedForecasts:
    """Run a job whose calls have a `max_wait`, and check `most` of the refused ones."""
    first = gate(case, limit=LIMIT)
    numbers: Sequence[int] = sorted(first.turned_away)
    step = max(1.0, (len(numbers) - 1) / max(1, most - 1))
    picked = [numbers[round(place * step)] for place in range(most) if round(place * step) < len(numbers)]
    verdicts = map(partial(_check_one, case, first), picked)
    # Without headers few may be in flight at first; a wait for a place is not a wait for quota.
    overdue = first.overdue if case.front and case.front.form != "none" else 0
    return sum(verdicts, CheckedForecasts(refused=len(numbers), late=overdue))
