"""Wrong usage of each command: one line on standard error, and no request."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from chainapi.simulator import Simulator
from tests.cli.terminal import BLOCKS, WRONG_USAGE, chainapi
from tests.cli.terminal import environment as environment

TRANSFERS = f"data.evm.erc20_transactions 0x{'1' * 40} --param chain_id=43114 --page-size 5"

# Commands, and what their error says.
USAGE = f"""\
# any command
tps -> CHAINS
tps 1 --limit 0 -> --limit
tps 1 --nope -> --nope
tps 1 --api-key x -> --api-key
tps 1 --api-key=ac_0123456789abcdef -> --api-key=***
tps 1 --provider ac_0123456789abcdef -> "***" for --provider
tps a/b -> chain_id
tps 1 --timeout 0 -> --timeout
tps 1 --max-wait -1 -> --max-wait
tps 1 --metrics-base-url '' -> --metrics-base-url is empty
list /v1/chains --api other -> --api
list v1/chains -> path
list /v1/chains --page-size 0 -> --page-size
list /v1/chains --param a -> NAME=VALUE
list /v1/chains --param =a -> NAME=VALUE
list {BLOCKS} --resume '{{}}' -> --resume: this is no checkpoint of chainapi
simulate --port 70000 -> --port
simulate --window 0 -> --window
routes --limit=3 -> option: --limit=3.
plot a.csv --out b.png --top 0 -> --top
export data.chains --png=b.png -> Unknown option: --png=b.png
list data.evm.blocks 1 --fields gas_use -> no field 'gas_use': did you mean 'gas_used'?
plot a.csv b.csv -> 'b.csv' is one value too many
dance -> dance
# list
list data.evm.bloks -> no route is named 'data.evm.bloks': did you mean 'data.evm.blocks'?
list blocks -> did you mean 'data.evm.blocks'?
list zzz -> `chainapi routes` shows all names
list data.evm.blocks 1 --api metrics -> --api does not apply
list data.evm.blocks 1 --items blocks -> --items does not apply
list data.evm.blocks 1 --page-size 101 -> --page-size 101 is not from 1 to 100
list data.evm.blocks 1 --page-size 7 --param page_size=7 -> page_size takes one value, not 2
list data.chain 1 --page-size 7 -> page_size
list data.chain 1 --all -> --all does not apply: data.chain returns a single resource
list data.chain 1 --resume '{{}}' -> --resume does not apply
list {BLOCKS} 43114 -> VALUE does not apply
list {BLOCKS} --param pageSize=7 -> --param pageSize=7 is not a query parameter
list {BLOCKS} --param pageToken=x -> --param pageToken=x is not a query parameter
list {BLOCKS} --param pagesize=7 -> --param pagesize=7 is not a query parameter, see --help
list {BLOCKS} --param start_block=7 \
    -> start_block=7 is not a query parameter: parameters of the services have no underscore
list data.evm.blocks 1 --resume '{{}}' -> --resume: this is no checkpoint
# values of parameters
list data.evm.blocks -> missing chain_id; usage: data.evm.blocks CHAIN_ID
list data.primary_network.chain_ids \
    -> missing network, addresses; usage: data.primary_network.chain_ids NETWORK --param addresses=
list data.evm.blocks 1 2 -> '2' is one value too many; usage: data.evm.blocks CHAIN_ID
list data.chains 1 -> '1' is one value too many; usage: data.chains
list data.evm.blocks 1 --param chain_id=2 -> chain_id takes one value, not 2
list data.evm.blocks 1 --param page_size=7 --param pageSize=7 -> page_size takes one value, not 2
list data.evm.blocks 1 --param page_size=x -> --page-size 'x' is invalid: it must be a whole number
list data.evm.blocks 1 --param page_sise=1 -> did you mean 'page_size'?
list data.evm.blocks 1 --param page_size -> --param 'page_size' must be NAME=VALUE
list data.primary_network.utxos fugi p-chain -> network='fugi' is not known; did you mean 'fuji'?
list data.primary_network.utxos fuji p-chain --param min_utxo_amount=x -> is invalid: it must be a number
list data.evm.erc20_balances 1 0x --param filter_spam_tokens=yes -> it must be true or false
list metrics.chains.metric 1 avgTps --param start_timestamp=soon -> or an ISO date such as 2026-01-31
list metrics.chains.metric 1 avgTps --param start_timestamp=-1 -> is not from 0 on
# estimate
estimate data.evm.blocks -> --rows
estimate data.evm.blocks --rows 0 -> --rows
estimate data.evm.blok --rows 1 -> did you mean 'data.evm.block'?
estimate {BLOCKS} --rows 1 -> the cost of '{BLOCKS}' is not known: give the name of a route
estimate data.chains --rows 1 -> give --page-size
estimate data.chain --rows 1 --page-size 7 -> --page-size does not apply
estimate data.evm.blocks --rows 1 --page-size 101 -> --page-size 101
estimate data.evm.blocks 1 2 --rows 1 -> one value too many
estimate data.evm.blocks --rows 1 --limit 5/60 -> a request costs 10 units
estimate data.evm.blocks --rows 1 --limit much -> AMOUNT/TIME
# export
export data.evm.blocks 43114 -> --out
export data.evm.blocks --out b.csv -> give values of chain_id, or --from FILE
export data.evm.blocks 43114 --out b.exe -> b.exe
export data.evm.blocks 43114 --out b.csv --format xml -> xml
export data.evm.blocks 43114 --out b.csv --limit 0 -> --limit
export data.evm.blocks 43114 --out b.csv --concurrency 0 -> --concurrency
export data.evm.blocks 43114 --out b.csv --page-size 0 -> --page-size
export data.evm.blocks 43114 --out b.csv --page-size 101 -> --page-size 101
export data.evm.blocks 43114 --out b.csv --page-size 9 --param page_size=9 -> page_size
export data.evm.blocks 43114 --out b.csv --param chain_id=43114 -> one value too many
export data.evm.blocks 43114 --out b.csv --param colour=red -> colour
export data.evm.blocks 43114 --out b.csv --over colour -> --over colour
export data.evm.blocks 43114 --out b.csv --api data -> --api does not apply
export data.evm.blocks 43114 --out b.csv --items blocks -> --items does not apply
export data.evm.blocks --from nofile --out b.csv -> --from nofile cannot be read
export data.evm.blocks --from binary --out b.csv -> --from binary is not UTF-8 text
export data.evm.blocks 43114 --out b.csv --fields a,tx_cuont -> the nearest are 'tx_count'
export data.evm.blocks 43114 --out b.csv --fields gas_used,gas_used -> --fields has 'gas_used' twice
export data.evm.blocks 43114 --out b.csv --lookback '9 blocks' -> --lookback in blocks does not fit
export data.evm.blocks 43114 --out b.csv --lookback soon -> --lookback 'soon' must be a distance
export data.chains --out b.csv --lookback 1d -> --lookback does not apply to this list
export data.evm.blocks 43114 --out b.csv --compression gzip -> compression and row groups apply to Parquet
export data.evm.blocks 43114 --out b.parquet --compression-level 99 \
    -> --compression-level 99 must be a whole number from 1 to 22
export data.evm.blocks 43114 --out b.csv --partition day -> --partition applies to a folder
export data.evm.blocks 43114 --out b --partition week -> 'week', which is no key
export metrics.networks.metric validatorCount --param network=mainnet --ranges 8 --out b.csv \
    -> pass --param start_timestamp=VALUE, because
export data.evm.blocks 43114 --out b --partition day --fields gas_used -> add 'block_timestamp' to --fields
export --out b.csv -> a ROUTE is missing
export data.evm.blocks 43114 --out b --commit-seconds -1 -> --commit-seconds
export --show b --out c -> --out does not apply
export data.evm.blocks 43114 --out sftp://me:hunt3r2@host/b/ -> sftp://host/b/ was given with a password
export {TRANSFERS} --out t.csv --ranges many -> --ranges 'many' must be a number of ranges
export {TRANSFERS} --out t.csv --ranges '7 days' -> days do not fit a list by block
export {TRANSFERS} --out t.csv --ranges 8 --limit 5 -> does not apply with a limit
export {BLOCKS} --out b.jsonl --fields blockNumber -> --fields
export {BLOCKS} --out b/ --partition day -> --partition
export data.evm.block --out b.csv -> not a list
export data.evm.bloks 43114 --out b.csv -> did you mean
export data.primary_network.utxos mainnet --out b.csv -> give all but one with --param
export {BLOCKS} 43114 --out b.jsonl -> '43114' is not a path
export {BLOCKS} --out b.jsonl --over chain_id -> --over does not apply
export {BLOCKS} --out b.csv --progress none -> not known: name a route, or write JSON lines
# simulate
simulate --fault data.evm.bloks=status:503 -> --fault: no route is named 'data.evm.bloks'
simulate --fault data.evm.blocks -> --fault: cannot read the fault 'data.evm.blocks': write ROUTE=KEY:VALUE
simulate --fault '*=sta' -> --fault: a fault has no part 'sta': use at:VALUE, every:VALUE
simulate --fault '*=stall' --fault '*=at:0,stall' -> --fault: 'at' must be >= 1: 0
simulate --chains 7 7 -> chainapi: --chains must be at least one chain id, each given once
simulate --chains C -> --chains
simulate --anomalies-in data.nothing --ties 2 -> chainapi: no route is named 'data.nothing'
simulate --ties 0 -> --ties
simulate --order random -> --order
simulate --malformed 2 -> --malformed
simulate --repeat-pages 0 -> --repeat-pages must be "last" or a number
simulate --repeat-pages first -> --repeat-pages
simulate --grow-every 0 -> --grow-every
simulate --expired-status 200 -> --expired-status
simulate --fault '*=status:99' -> --fault: 'status' must be >= 200: 99
simulate --api-key-header 'x y' -> --api-key-header
"""
ROWS = [line.split(" -> ") for line in USAGE.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("command", "said"), [(command.strip(), said) for command, said in ROWS])
def test_wrong_usage_is_one_line_and_no_request(
    command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An argument that is wrong or does not apply is named in the words of the command line, unsent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    simulator = Simulator(seed=1)
    outcome = chainapi(*shlex.split(command), transport=simulator.transport())
    assert (outcome.code, outcome.out, simulator.stats.requests) == (WRONG_USAGE, "", 0)
    *note, line = outcome.err.splitlines()
    assert line.startswith("chainapi: ")
    assert said in line
    assert not note or "later runs do not fetch it again" in note[0]
    assert [word for word in ("hunt3r2", "model=", "timedelta") if word in outcome.err] == []
