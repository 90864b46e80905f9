"""Factories of rows: values of one type, made by the schema of a model.

A factory makes a row from its `Context`: equal rows from equal contexts. The values of fields follow from the
names of the fields, see `values`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

from attrs import frozen

from chainapi.models.schema import Type, fields_of, type_of
from chainapi.models.unions import Tag
from chainapi.simulator.rows import DAY, Draw, Row, Timed
from chainapi.simulator.values import Context, Factory, value_of

__all__ = ["Generated", "factory"]

MISSING = 0.2  # share of rows that lack an optional field

# Values of the request that records at any depth repeat; only the row itself repeats the others.
SHARED = frozenset({"chainId", "chainName", "network", "currencyCode"})
# Fields that hold the row itself.
WRAPPERS = frozenset({"nativeTransaction", "nativeTokenBalance", "result", "chainInfo"})
# Optional fields that the services always send, after the names of their records.
ALWAYS = re.compile(
    r"(EvmBlock|(Full)?NativeTransaction)\.chainId|Erc20Token(Balance|V2)\.tokenReputation"
    r"|ActiveValidator\.geolocation|NetworkToken\.(name|symbol|decimals)"
    r"|ChainInfo\.(chainId|status|chainName|description|platformChainId|subnetId|vmName|rpcUrl|isTestnet)"
    r"|ChainInfo\.(networkToken|enabledFeatures)"
)
# Two names of one network: a field repeats the one that it lists.
SYNONYMS = {"fuji": "testnet", "testnet": "fuji"}


@frozen(cache_hash=True)
class Generated(Timed):
    """Rows that a factory makes; a single resource is the only row of its list.

    Attributes:
        make: factory of a row.
        seed: seed of the simulator.
        draw: random bytes of each row.
        chains: the chain ids that exist.
        echoes: values of the request that the rows repeat, as pairs of a field and its text.

    """

    make: Factory
    seed: int
    draw: Draw
    chains: tuple[int, ...]
    echoes: tuple[tuple[str, str], ...]

    def row(self, number: int) -> Row:
        """Return a row."""
        row: Row = self.make(self.context(number))
        return row

    def context(self, number: int) -> Context:
        """Return the context of a row."""
        random = Random(0)  # noqa: S311 - a simulation is to be repeatable, not secret
        random.seed(self.draw(number))  # it would hash these bytes twice if it was made with them
        echoes = dict(self.echoes)
        shared = {name: text for name, text in self.echoes if name in SHARED}
        return Context(self.seed, random, number, self.time(number), self.chains, echoes, shared)


# From types to factories


@cache
def factory(model: Any, name: str = "", *, without: frozenset[str] = frozenset()) -> Factory:
    """Return the factory of a model or another type, for a field with this name.

    The name is that on the wire. `without` names the kinds of a union that are not made.
    """
    of = type_of(model)
    if without:
        return _of_kinds([tag for tag in of.tags if tag.kind.__name__ not in without], outer=True)
    return _factory(of, name)


def _factory(of: Type, name: str, *, owner: Any = None, outer: bool = True) -> Factory:
    """Return the factory of a type; `outer` is true for the row itself."""
    match of.kind:
        case "union":
            if of.tags:
                return _of_kinds(of.tags, outer=outer)
            return _factory(of.members[0], name, owner=owner, outer=outer)
        case "record":
            return _record(of.hint, outer=outer)
        case "list":
            return _list(_factory(of.item, name, owner=owner, outer=False))
        case "mapping":
            return _mapping(of)
        case _ if of.choices:
            return lambda context: context.one_of(of.choices)
        case _:
            return value_of(of, name, owner)


def _of_kinds(tags: Sequence[Tag], *, outer: bool) -> Factory:
    """Return the factory of a union: of the requested kind, or of all kinds."""
    kinds = [(tag, _factory(type_of(tag.kind), "", outer=outer)) for tag in tags]
    others = [factory for tag, factory in kinds if "Chain" not in tag.kind.__name__]  # of no one chain

    def make(context: Context) -> Any:
        fitting = [factory for tag, factory in kinds if _fits(tag, context.echoes)]
        return context.one_of(fitting or others or [factory for _, factory in kinds])(context)

    return make


def _fits(tag: Tag, echoes: Mapping[str, str]) -> bool:
    if tag.value is not None:
        return echoes.get(tag.path[0], tag.value) == tag.value
    # Kinds of the Primary Network begin with the letter of their chain: PChainTransaction is of the p-chain.
    return echoes.get("chainName", tag.kind.__name__)[0].upper() == tag.kind.__name__[0]


def _record(model: Any, *, outer: bool) -> Factory:
    """Return the factory of a record, with some of the optional fields missing.

    A share of the objects lacks each of them.
    """
    fields: list[tuple[str, Type, bool, Factory]] = []
    for field in fields_of(model):
        of = field.type.members[0] if field.type.members else field.type
        make = _factory(field.type, field.wire, owner=model, outer=outer and field.wire in WRAPPERS)
        optional = not field.required and not ALWAYS.fullmatch(f"{model.__name__}.{field.wire}")
        fields.append((field.wire, of, optional, make))

    def record(context: Context) -> Row:
        echoes = context.echoes if outer else context.shared
        chance = context.random.random
        context.index = int(chance() * 256)
        row: Row = {}
        for name, of, optional, make in fields:
            if name in echoes and (value := _echo(of, echoes[name])) is not None:
                row[name] = value
            elif not optional or chance() >= MISSING:
                row[name] = make(context)
        return row

    return record


def _echo(of: Type, text: str) -> Any:
    """Return a value of the request as a row has it; None if it does not fit the type."""
    if of.kind == "text":
        return SYNONYMS.get(text, text) if of.choices and text not in of.choices else text
    if of.kind == "integer" and re.fullmatch("0|[1-9][0-9]{0,77}", text):
        return text if of.as_text else int(text)
    return None


def _list(make: Factory) -> Factory:
    """Return the factory of one or two values, the second one of the day before."""

    def several(context: Context) -> list[Any]:
        values = [make(context)]
        if context.below(2):
            context.time -= DAY
            values.append(make(context))
            context.time += DAY
        return values

    return several


def _mapping(of: Type) -> Factory:
    if of.item.kind == "any":  # BLS credentials, the only objects without a type
        key, proof = factory(str, "publicKey"), factory(str, "proofOfPossession")
        return lambda context: {"publicKey": key(context), "proofOfPossession": proof(context)}
    make = _factory(of.item, "", outer=False)
    return lambda context: {"database": make(context)}
