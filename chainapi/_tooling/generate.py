"""Generate records, routes and docs.

Run it as `python -m chainapi._tooling.generate [--check]`. Records and routes come from the OpenAPI documents
(`find_documents`) and the entries in `routes.toml` and `records.toml`; without the documents they stay as
they are. Docs come from the declared routes. With `--check` nothing is written, and the command fails if a
file is out of date.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence

from chainapi._tooling.entries import ROUTES, Entries
from chainapi._tooling.files import COMMAND, ROOT, GeneratorError, Writer
from chainapi._tooling.groups import Method, write_groups
from chainapi._tooling.openapi import Document, Operation, find_documents
from chainapi._tooling.records import Records, write_records

__all__ = ["main", "write_sources"]

# Commands that write what is derived from the routes. They import the modules that were just written.
DERIVED = (("-m", "chainapi._tooling.pages"), ("docs/recording.py",), ("docs/rate_limits.py",))


def operations_of(documents: Iterable[Document], entries: Entries) -> dict[str, Operation]:
    """Return the routes of the documents by dotted name, in the order of entries.

    Raises:
        GeneratorError: a route has an entry or is in a document, but not both.

    """
    found = {(one.name, operation.place): operation for one in documents for operation in one.operations()}
    listed = {(name.partition(".")[0], entry.path): name for name, entry in entries.routes.items()}
    for service, path in sorted(found.keys() - listed.keys()):
        raise GeneratorError(
            f"the documents have a route of the {service} service that has no entry: {path}. Add it to"
            f" {ROUTES}, with its dotted name, its path and its docstring; then run {COMMAND}"
        )
    for place in sorted(listed.keys() - found.keys()):
        raise GeneratorError(
            f"{listed[place]} in {ROUTES} has the path {place[1]}, which no document has: add that document"
            " to the folder of the documents (NAME-api.json), or remove the entry"
        )
    return {name: found[place] for place, name in listed.items()}


def write_sources(documents: Sequence[Document], writer: Writer, entries: Entries) -> None:
    """Write records and routes from documents.

    Raises:
        GeneratorError: an entry is missing, or does not fit the documents.

    """
    records = Records(entries.names)
    methods: dict[str, list[str]] = {}
    for name, operation in operations_of(documents, entries).items():
        group = name.rpartition(".")[0]
        method = Method(name, entries.routes[name], operation, records, entries.groups[group].records)
        methods.setdefault(group, []).append(method.text())
    for document in documents:
        for schema in document.webhooks():
            records.one_of("the webhooks", [schema], "webhooks")
    write_records(records, writer)
    write_groups(entries, methods, records, writer)


def main(arguments: Sequence[str]) -> int:
    """Write or check all generated files, and return the exit code.

    The code is 1 if a step is missing, or if a checked file is out of date.
    """
    writer = Writer(check="--check" in arguments)
    documents = find_documents()
    try:
        if documents:
            write_sources(documents, writer, Entries.read())
        else:
            print("no OpenAPI documents: records and routes stay as they are (see docs/contributing.md)")
    except GeneratorError as error:
        print(f"not generated: {error}", file=sys.stderr)
        return 1
    option = ("--check",) if writer.check else ()
    runs = [subprocess.run((sys.executable, *one, *option), check=False, cwd=ROOT) for one in DERIVED]
    return writer.report() or int(any(run.returncode for run in runs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
