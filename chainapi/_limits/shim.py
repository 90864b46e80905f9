"""Trial: the new quota behind the old gate."""

from __future__ import annotations
from math import inf
from typing import Any
from chainapi._limits.quota import Quota as New
from chainapi._limits import quota as q
from chainapi._limits.costs import Costs
from chainapi._limits import verdict as v

Costs.likely = Costs.least  # type: ignore


class Routes:
    def __init__(self, n):
        self.n = n

    @property
    def known(self):
        return self.n.routes.known or self.n.announced.policies

    def opens_at(self, route, now):
        return self.n.routes.opens_at(route, now, self.n.patience)

    def closed_until(self, route):
        return self.n.routes.closed_until(route)

    def places(self, route, now):
        return self.n.routes.places(route, now, self.n.patience)

    def wakes_at(self, route, now):
        u = self.n.routes.opens_at(route, now, self.n.patience)
        return u if u > now else inf


class Probes:
    def __init__(self, n):
        self.n = n

    def opens_at(self, now):
        n = self.n
        if not n.probes:
            return None
        return now if n.probes < n.most_probes else n.hedge_at

    @property
    def trip(self):
        return self.n.trip


class Quota:
    def __init__(self, max_in_flight=100, limits=(), probe=True, max_stop=inf):
        object.__setattr__(self, "n", New(max_in_flight=max_in_flight, probe=probe, max_stop=max_stop))
        object.__setattr__(self, "routes", Routes(self.n))
        object.__setattr__(self, "probes", Probes(self.n))
        self.n.add_limits(limits)

    def __getattr__(self, name):
        return getattr(self.n, name)

    def __setattr__(self, name, value):
        setattr(self.n, name, value)

    def answered(self, *a):
        return v.Verdict(self.n.answered(*a).value)
