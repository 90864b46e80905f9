"""Generator: the files that it writes, and its errors."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hatchling.builders.wheel import WheelBuilder

from chainapi import Session
from chainapi._api import catalogue
from chainapi._tooling import calls, generate, pages
from chainapi._tooling.entries import RECORDS, ROUTES, Entries
from chainapi._tooling.files import COMMAND, HEADER, ROOT, GeneratorError, Writer
from chainapi._tooling.openapi import Document, snake
from chainapi._tooling.records import sentence
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response
from tests.documents import Maker, path_pattern
from tests.test_session import reply, scripted, session_of

pytestmark = pytest.mark.rule

# The generated files of the checkout

ENTRIES = Entries.read()


def test_docs_are_up_to_date() -> None:
    """Docs equal the generator's output from the declared routes."""
    writer = Writer(check=True)
    pages.write(writer)
    assert writer.changed == [], f"out of date: run {COMMAND}"


def test_generated_files_name_the_command() -> None:
    """Modules that the generator writes completely have their command in the first line."""
    groups = [path for path in (ROOT / "chainapi/_api/groups").glob("*.py") if path.stem != "__init__"]
    modules = [ROOT / f"chainapi/models/{name}.py" for name in (*ENTRIES.names.modules, "enums", "__init__")]
    first = {path: path.read_text("utf-8").splitlines()[0] for path in (*groups, *modules)}
    assert [path for path, line in first.items() if line != HEADER] == []
    assert COMMAND in HEADER


def test_all_routes_are_there() -> None:
    """Sessions have every route with an entry, each at most three names away."""
    names = {*catalogue.ROUTES, *catalogue.WRITES}
    assert names == {*ENTRIES.routes, "metrics.avg_tps"}, f"run {COMMAND}"
    assert set(catalogue.WRITES) == {name for name, entry in ENTRIES.routes.items() if entry.writes}
    assert max(name.count(".") for name in names) == 2


# Typed calls


async def test_the_typed_calls_run() -> None:
    """The calls of every route whose types are checked have every parameter, and run."""
    calls_of: dict[str, Any] = {}
    exec(calls.text(), calls_of)
    simulator = Simulator(chains=[7], forbidden=[])
    async with Session(**simulator.arguments()) as session:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            await calls_of["call_every_route"](session)
    singles = [name for name, endpoint in catalogue.ROUTES.items() if endpoint.single]
    assert simulator.stats.answered == {200: len(singles) - 1, 201: 1}
    maker, declared = Maker(seed=2), iter(catalogue.WRITES.values())

    def answer(request: Request) -> Response:
        endpoint = next(declared)
        assert request.method == endpoint.record.method
        assert path_pattern(endpoint).fullmatch(urlsplit(request.url).path)
        return Response(201) if endpoint.bodiless else reply(maker.value(endpoint.route.model))

    transport = scripted(answer)
    async with session_of(transport) as session:
        await calls_of["call_every_write"](session)
    assert len(transport.requests) == len(catalogue.WRITES)


def test_generated_pages_name_the_command() -> None:
    """Generated pages have the command in their first line; others are unchanged."""
    text = "# Title\n\n<!-- begin keys -->\nold\n<!-- end -->\n"
    once = pages.page(text)
    assert COMMAND in once.splitlines()[0]
    assert "old" not in once
    assert pages.page(once) == once
    assert pages.page("# Title\n") == "# Title\n"
    with pytest.raises(GeneratorError, match=r"part 'news': there are events, help, options, keys"):
        pages.page(text.replace("keys", "news"))


def test_the_wheel_has_no_generator() -> None:
    """The wheel has the package and its models, but no generator and no tests."""
    shipped = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {"chainapi/session.py", "chainapi/models/evm.py", "chainapi/py.typed"} <= shipped
    assert not [name for name in shipped if "_tooling" in name or not name.startswith("chainapi/")]


# The generator on a document of its own


PATH = "/v1/chains/{chainId}/blocks"


def a_document() -> dict[str, Any]:
    """Return a document with one route, as our record has it."""
    numbers = (
        "blockNumber",
        "baseFee",
        "gasUsed",
        "gasLimit",
        "gasCost",
        "feesSpent",
        "cumulativeTransactions",
    )
    fields: dict[str, Any] = {
        name: {"type": "string"} for name in (*numbers, "chainId", "blockHash", "parentHash")
    }
    fields |= {name: {"type": "number"} for name in ("blockTimestamp", "txCount")}
    required = [*fields]
    fields |= {name: {"type": "number"} for name in ("blockTimestampMilliseconds", "blockMinDelayExcess")}
    answer = {
        "required": ["blocks"],
        "properties": {
            "nextPageToken": {"type": "string"},
            "blocks": {"type": "array", "items": {"$ref": "#/components/schemas/EvmBlock"}},
        },
    }
    size = {"type": "integer", "default": 10, "minimum": 1, "maximum": 100}
    get = {
        "x-execution-weight": "small",
        "parameters": [
            {"in": "query", "name": "pageToken", "schema": {"type": "string"}},
            {"in": "query", "name": "pageSize", "schema": size},
            {"in": "path", "name": "chainId", "required": True, "schema": {"type": "string"}},
        ],
        "responses": {"200": {"content": {"application/json": {"schema": answer}}}},
    }
    return {
        "servers": [{"url": "https://data.example.com"}],
        "paths": {PATH: {"get": get, "options": {}}},
        "components": {"schemas": {"EvmBlock": {"properties": fields, "required": required}}},
    }


def document_of(content: dict[str, Any], folder: Path) -> Document:
    """Write a document, and read it."""
    place = folder / "document.json"
    place.write_text(json.dumps(content), "utf-8")
    return Document.read(place)


BLOCKS = f"""
[data]
class = "DataAPI"
doc = "Data API."
base = "ServiceAPI"
records = "common"

[data.evm]
class = "EVM"
doc = "Blocks."

[data.evm.blocks]
path = "{PATH}"
doc = "Walk the blocks of a chain, newest first."
key.by = ["block_hash"]
key.why = "the hash finds one block"
order.by = ["block_timestamp"]
order.why = "the route sorts by block timestamp, descending"
"""


def generated(content: dict[str, Any], folder: Path, entries: str = BLOCKS, *, check: bool = False) -> Writer:
    """Generate the files of a checkout from a document with one route."""
    writer = Writer(folder, check=check)
    generate.write_sources([document_of(content, folder)], writer, Entries.read(entries))
    return writer


def test_generating_again_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Repeated generation writes no file; --check lists the files and writes none."""
    check = generated(a_document(), tmp_path, check=True)
    assert not (tmp_path / "chainapi/models").exists()
    assert check.report() == 1
    assert f"chainapi/models/evm.py is out of date: run {COMMAND}" in capsys.readouterr().out
    first = generated(a_document(), tmp_path)
    assert first.changed == check.changed
    assert (first.report(), generated(a_document(), tmp_path).changed) == (0, [])


def test_a_document_becomes_a_record_and_a_route(tmp_path: Path) -> None:
    """Records have the fields of the schema; methods have the route's parameters."""
    generated(a_document(), tmp_path)
    model = (tmp_path / "chainapi/models/evm.py").read_text("utf-8")
    assert "class EvmBlock(Record, frozen=True, kw_only=True):" in model
    assert re.findall(r"    block_number: Annotated\[Int, AS_TEXT\]$", model, re.MULTILINE)
    assert "    block_timestamp_milliseconds: Int | None = None\n" in model
    assert '    block_time: ClassVar[UTCDatetime] = UTCDatetime("block_timestamp")' in model
    group = (tmp_path / "chainapi/_api/groups/evm.py").read_text("utf-8")
    assert "page_size: PageSize | None = 100," in group
    assert ") -> Pages[EvmBlock]:" in group
    assert 'descending_key="block_timestamp"' in group


def test_a_fragment_is_a_document(tmp_path: Path) -> None:
    """Documents of one service are merged: a fragment with a new route is enough."""
    fragment = a_document()
    fragment["paths"] = {"/v1/chains/{chainId}/logs": fragment["paths"][PATH]}
    logs = '[data.evm.logs]\npath = "/v1/chains/{chainId}/logs"\ndoc = "Walk the logs."\n'
    documents = [document_of(a_document(), tmp_path), document_of(fragment, tmp_path)]
    found = generate.operations_of(documents, Entries.read(BLOCKS + logs))
    assert [*found] == ["data.evm.blocks", "data.evm.logs"]


def test_a_new_group_is_declared(tmp_path: Path) -> None:
    """A new group is a table: its module is written, and its service declares it."""
    entries = BLOCKS.replace("data.evm", "data.ledger").replace('"EVM"', '"Ledger"\nrecords = "evm"')
    generated(a_document(), tmp_path, entries.replace("\nkey.by", '\nweight = "xl"\nkey.by'))
    module = (tmp_path / "chainapi/_api/groups/ledger.py").read_text("utf-8")
    assert "class Ledger(Group):" in module
    assert 'weight="xl"' in module  # the document says small
    service = (tmp_path / "chainapi/_api/data.py").read_text("utf-8")
    assert '    ledger: Ledger = group("chainapi._api.groups.ledger.Ledger")\n    """Blocks."""\n' in service


GET = f"paths {PATH} get"
BLOCK = "components schemas EvmBlock"
ANSWER = f"{GET} responses 200 content application/json schema properties"


def change(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Return a change of one place of a document; None removes the place."""

    def apply(content: dict[str, Any]) -> None:
        *parents, last = path.split(" ")
        at: Any = content
        for name in parents:
            at = at[int(name)] if isinstance(at, list) else at[name]
        key: Any = int(last) if isinstance(at, list) else last
        if value is None:
            del at[key]
        else:
            at[key] = value

    return apply


ROWS = f"{ANSWER} blocks items"
TWO_ENUMS = {"oneOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "string", "enum": ["c", "d"]}]}
NESTED = {"properties": {"hash": {"type": "string"}}}


LOG = {"$ref": "#/components/schemas/Log"}
ONE_OF_TWO = {"oneOf": [{"$ref": "#/components/schemas/EvmBlock"}, LOG]}
SAME_CLASS = {"$ref": "#/components/schemas/GetEvmBlockResponse"}
NEWS = {"get": a_document()["paths"][PATH]["get"]}

POST = {"post": {**NEWS["get"], "requestBody": {"content": {"application/json": {"schema": ONE_OF_TWO}}}}}
START = {"in": "query", "name": "startBlock", "schema": {"type": "integer"}}
KEY = 'key.by = ["block_hash"]'

# Step that is missing: change of the document, old and new text in the entries, part of the message.
STEPS = {
    "servers": (change("servers", None), "", "", "has no servers"),
    "name": (change("paths /v1/news", NEWS), "", "", f"has no entry: /v1/news. Add it to {ROUTES}"),
    "document": (change(f"paths {PATH}", {}), "", "", f"data.evm.blocks in {ROUTES} has the path {PATH}"),
    "syntax": (None, KEY, "key.by =", f"{ROUTES}: Invalid value"),
    "unknown": (None, KEY, 'colour = "blue"', f"{ROUTES}: data.evm.blocks: Object contains unknown field"),
    "type": (None, KEY, 'key.by = "block_hash"', "Expected `array`, got `str` - at `$.key.by`"),
    "docstring": (None, 'doc = "Walk', '# "Walk', "data.evm.blocks: Object missing required field `doc`"),
    "group": (None, "[data.evm.", "[data.logs.", "data.logs: Object missing required field `class`"),
    "base": (None, "ServiceAPI", "Services", "chainapi/_api/data.py would use names that it does not import"),
    "module": (None, "[data.evm", "[data.logs", f"have no module: add it to [modules] in {RECORDS}"),
    "key": (None, f'{KEY}\nkey.why = "the hash finds one block"', "", "Add `key.by` and `key.why`"),
    "range": (change(f"{GET} parameters 0", START), "", "", "Add `range.by` and `range.why`"),
    "writing": (None, PATH, f"POST {PATH}", "data.evm.blocks: whether the route changes something"),
    "attribute": (
        change(f"{BLOCK} required 8", None),
        "",
        "",
        "data.evm.blocks: its key names block_hash, which EvmBlock need not have",
    ),
    "no attribute": (None, "block_hash", "hash", "its key names hash, which EvmBlock need not have"),
    "no number": (None, '["block_timestamp', '["timestamp', "data.evm.blocks: no row has timestamp"),
    "schema": (change(ROWS, NESTED), "", "", "Move it to components/schemas"),
    "union": (change(ROWS, ONE_OF_TWO), "", "", f"are no union yet: add one to [unions] in {RECORDS}"),
    "enumeration": (change(f"{BLOCK} properties status", TWO_ENUMS), "", "", f"in [enums] in {RECORDS}"),
    "class": (change(f"{ANSWER} more", SAME_CLASS), "", "", f"class of its own in [classes] in {RECORDS}"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_missing_step_is_named(step: str, tmp_path: Path) -> None:
    """Generator errors name the route, and the file that lacks an entry or a key."""
    changed, old, new, said = STEPS[step]
    content = a_document()
    content["components"]["schemas"] |= {"Log": NESTED, "GetEvmBlockResponse": NESTED}
    if changed is not None:
        changed(content)
    with pytest.raises(GeneratorError) as caught:
        generated(content, tmp_path, BLOCKS.replace(old, new))
    assert said in str(caught.value)


# Changes of a document


# Change of a document -> the line that is written for it.
CHANGES = [
    (change(f"{GET} x-execution-weight", "xl"), 'weight="xl"'),
    (change(f"{GET} deprecated", True), "deprecated=True"),
    (
        change(f"{GET} parameters 1 schema maximum", 500),
        "page_size: Annotated[int, Bounds(1, 500)] | None = 500",
    ),
    (change(f"{GET} parameters 1 name", "size"), "size: Annotated[int, Bounds(1, 100)] | None = None"),
    (change(f"{ANSWER} more", {"type": "string"}), 'extra=(("more", "str"),)'),
    (change(f"{BLOCK} properties size", {"type": "number"}), "    size: Int | None = None"),
    (change(f"{BLOCK} properties txCount type", "boolean"), "    tx_count: bool"),
    (change(f"{BLOCK} properties status", {"enum": ["0x"]}), 'Status: TypeAlias = Literal["0x"]'),
    (change(f"{BLOCK} required 0", None), "    block_number: Annotated[Int, AS_TEXT] | None = None"),
    (change(f"{BLOCK} required 0", "blockMinDelayExcess"), "    block_min_delay_excess: Int\n"),
]


def test_each_change_of_a_document_is_written(tmp_path: Path) -> None:
    """A single change of the document changes a generated file: nothing of a document goes unnoticed."""
    generated(a_document(), tmp_path)
    before = {path: path.read_text("utf-8") for path in tmp_path.rglob("*.py")}
    unnoticed = []
    for changed, said in CHANGES:
        content = a_document()
        changed(content)
        written = [(tmp_path / name).read_text("utf-8") for name in generated(content, tmp_path).changed]
        if not any(said in text for text in written) or any(said in text for text in before.values()):
            unnoticed.append(said)
    assert unnoticed == []


def test_names_become_those_of_python() -> None:
    """JSON names become Python names."""
    named = {"blockNumber": "block_number", "erc20Token": "erc20_token", "l1ValidationId": "l1_validation_id"}
    assert {wire: snake(wire) for wire in named} == named


def test_docstrings_are_made_by_rule() -> None:
    """Docstrings of classes follow from their names, never from a document's text."""
    described = {
        "EvmBlock": "An EVM block.",
        "Erc20Transfer": "An ERC-20 transfer.",
        "XChainVertex": "An X-Chain vertex.",
        "Rewards": "Rewards.",
    }
    assert {name: sentence(name) for name in described} == described
