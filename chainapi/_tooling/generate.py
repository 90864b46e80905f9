"""Generate records, routes and docs.

Run it as `python -m chainapi._tooling.generate [--check]`. Records and routes come from the OpenAPI documents
(`find_documents`) and from the tables in `names`, `fields` and `keys`; without the documents they stay as
they are. Docs come from the declared routes. With `--check` nothing is written, and the command fails if a
file is out of date.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from chainapi._tooling import route_names
from chainapi._tooling.files import COMMAND, ROOT, GeneratorError, Writer
from chainapi._tooling.groups import Groups, write_groups
from chainapi._tooling.openapi import Document, Operation, find_documents
from chainapi._tooling.records import Record, Records, write_records

__all__ = ["main", "write_derived", "write_sources"]


# Scripts that run commands and simulations, and draw the outcome.
PICTURES = ("docs/recording.py", "docs/rate_limits.py")

Routes = Mapping[str, Mapping[str, tuple[str, str]]]


def operations_of(
    documents: Iterable[Document], routes: Routes
) -> dict[tuple[str, str], tuple[Document, Operation]]:
    """Return all routes of the documents by service and `Operation.place`.

    Raises:
        GeneratorError: a route is in a table or in a document, but not in both.

    """
    found = {
        (document.name, operation.place): (document, operation)
        for document in documents
        for operation in document.operations()
    }
    listed = {(service, path) for service, paths in routes.items() for path in paths}
    for service, path in sorted(found.keys() - listed):
        raise GeneratorError(
            f"the documents have a route of the {service} service that has no name: {path}. Add it to ROUTES"
            f" in chainapi/_tooling/route_names.py, with its dotted name and its docstring; then run"
            f" {COMMAND}"
        )
    for service, path in sorted(listed - found.keys()):
        raise GeneratorError(
            f"ROUTES in chainapi/_tooling/route_names.py lists {path} of the {service} service, which no"
            " document has: add that document to the folder of the documents (NAME-api.json), or remove the"
            " entry"
        )
    return found


def write_sources(documents: Iterable[Document], writer: Writer, routes: Routes = route_names.ROUTES) -> None:
    """Write records and routes from documents.

    Raises:
        GeneratorError: a table has no entry for something in the documents.

    """
    documents = list(documents)
    operations = operations_of(documents, routes)
    records = Records()
    groups = Groups(records)
    for service, paths in routes.items():
        for path, (dotted, docstring) in paths.items():
            groups.add(*operations[service, path], dotted, docstring)
    for document in documents:
        for schema in document.webhooks():
            records.union(document, Record("the webhooks"), [schema], "webhooks")
    write_records(records, writer)
    write_groups(groups, writer)


def write_derived(writer: Writer) -> None:
    """Write the docs from the declared routes."""
    # Imported here: they read the routes that `write_sources` may just have written.
    from chainapi._tooling import calls, pages

    calls.check_names()
    pages.write(writer)


def record(*, check: bool) -> bool:
    """Write or check the pictures of the docs; return whether they are up to date."""
    option = ("--check",) if check else ()
    runs = [subprocess.run((sys.executable, name, *option), check=False, cwd=ROOT) for name in PICTURES]
    return not any(run.returncode for run in runs)


def main(arguments: Sequence[str]) -> int:
    """Write or check all generated files, and return the exit code.

    The code is 1 if a step is missing, or if a checked file is out of date.
    """
    writer = Writer(check="--check" in arguments)
    documents = find_documents()
    try:
        if documents:
            write_sources(documents, writer)
        else:
            print("no OpenAPI documents: records and routes stay as they are (see docs/contributing.md)")
        write_derived(writer)
    except GeneratorError as error:
        print(f"not generated: {error}", file=sys.stderr)
        return 1
    recorded = record(check=writer.check)
    return writer.report() or int(not recorded)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
