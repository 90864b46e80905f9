"""Forecasts beside the future: whether a call that was turned away would have been served in time.

A run in virtual time can be played again up to any moment, and then otherwise. So for each `QuotaWaitError`
the same job runs twice more, with nobody who comes after it: once the call waits as long as it takes, behind
all who are before it and wait as well, and once it comes again when it was told to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from math import inf

from attrs import define

from chainapi.client.limiter import Permit
from chainapi.errors import QuotaWaitError
from tests.limits.wild import OVERDUE, Client, Errand, Outcome, Scene, run

__all__ = ["Judgement", "judge"]

EPSILON = 1e-3  # seconds
LIMIT = 1e5  # seconds


@define
class Judgement:
    """What became of the forecasts of some jobs: how many were judged, and which were wrong."""

    refused: int = 0
    judged: int = 0
    wrong: int = 0  # turned away, although their turn would have come in time
    again: int = 0  # turned away once more at the time that they were told
    late: int = 0  # told later than `max_wait` allows, or sent later
    soon: int = 0  # told that quota is back in less than a twentieth of a second

    def __add__(self, other: Judgement) -> Judgement:
        """Return both together."""
        return Judgement(
            self.refused + other.refused,
            self.judged + other.judged,
            self.wrong + other.wrong,
            self.again + other.again,
            self.late + other.late,
            self.soon + other.soon,
        )

    def share(self) -> tuple[float, float]:
        """Return the shares of wrong refusals and of wrong times, in per cent."""
        return 100.0 * self.wrong / max(self.judged, 1), 100.0 * self.again / max(self.judged, 1)


class _Patient(Client):
    """Plays a job again, but from then on call `number` and those before it wait as long as it takes."""

    def __init__(self, scene: Scene, first: Outcome, number: int) -> None:
        super().__init__(scene)
        self.first, self.number, self.tries = first, number, first.asked[number][1]
        self.until = first.turned_away[number][0]
        self.began, self.waited = -inf, inf

    async def run(self, number: int, errand: Errand) -> None:
        """Do one errand, unless it begins after the moment that is judged."""
        if self.loop.time() > self.until:
            return
        await super().run(number, errand)
        if number in self.outcome.finished and number == self.number and self.began > -inf:
            self.waited = self.outcome.finished[number] - self.began - self.scene.trip

    async def acquire(self, number: int, errand: Errand, tries: int) -> Permit:
        """Wait at the gate."""
        if number == self.number and tries == self.tries:
            self.began = self.loop.time()
            return await self.wait(number, errand, tries)
        if self.first.turned_away.get(number, (inf, 0.0))[0] < self.until:
            return await super().acquire(number, errand, tries)
        return await self.gate.acquire(errand.route, cost=errand.prior, again=tries > 0)

    async def wait(self, number: int, errand: Errand, tries: int) -> Permit:
        """Wait without a limit."""
        return await self.gate.acquire(errand.route, cost=errand.prior, again=tries > 0)


class _Repeating(_Patient):
    """Plays a job again, but call `number` comes again when it was told to; the others do as before."""

    async def acquire(self, number: int, errand: Errand, tries: int) -> Permit:
        """Wait at the gate."""
        if number == self.number and tries == self.tries:
            self.began = self.loop.time()
            return await self.wait(number, errand, tries)
        if number == self.number and tries > self.tries:
            return await self.gate.acquire(errand.route, cost=errand.prior, again=True)
        return await Client.acquire(self, number, errand, tries)

    async def wait(self, number: int, errand: Errand, tries: int) -> Permit:
        """Wait as was told, then try once more."""
        try:
            return await Client.acquire(self, number, errand, tries)
        except QuotaWaitError as error:
            await asyncio.sleep(error.retry_after)
        return await Client.acquire(self, number, errand, tries)


def _play(kind: type[_Patient], scene: Scene, first: Outcome, number: int) -> float:
    """Return how long call `number` waits in another future; inf when it was turned away again."""
    played: list[_Patient] = []

    def build(scene: Scene) -> Client:
        played.append(kind(scene, first, number))
        return played[0]

    run(scene, LIMIT, build)
    return played[0].waited


def _judge_one(scene: Scene, first: Outcome, number: int) -> Judgement:
    assert scene.max_wait is not None
    when, after = first.turned_away[number]
    return Judgement(
        judged=1,
        wrong=_play(_Patient, scene, first, number) <= scene.max_wait - EPSILON,
        again=_play(_Repeating, scene, first, number) == inf,
        late=when - first.asked[number][0] > scene.max_wait + OVERDUE,
        soon=after < 0.05,
    )


def judge(scene: Scene, most: int = 4) -> Judgement:
    """Run a job whose calls have a `max_wait`, and judge `most` of those that were turned away."""
    first = run(scene, LIMIT)
    numbers: Sequence[int] = sorted(first.turned_away)
    step = max(1.0, (len(numbers) - 1) / max(1, most - 1))
    picked = [numbers[round(place * step)] for place in range(most) if round(place * step) < len(numbers)]
    verdicts = map(partial(_judge_one, scene, first), picked)
    # Where nothing is told, few may be in flight at first; waiting for a place is no wait for quota.
    overdue = first.overdue if scene.front.form != "none" else 0
    return sum(verdicts, Judgement(refused=len(numbers), late=overdue))
