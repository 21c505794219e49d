"""kvcq migrate ingest: hand sorted files over to a running store."""

from __future__ import annotations

import json
from pathlib import Path

import click

from proto.v1 import migration_pb2 as pb
from server.cli.connection import server_option
from server.cli.migration_target import remote_target
from server.cli.output import CommandError, json_option, notes, print_json

_MANIFEST = "manifest.json"


@click.command()
@click.argument("files", type=click.Path(exists=True, file_okay=False, path_type=Path))
@server_option
@json_option
def ingest(files: Path, server: str, as_json: bool) -> None:  # noqa: FBT001 - click passes by name
    """Hand the sorted files in FILES over to the running store, as its history in RocksDB.

    They were made by `kvcq spark rebuild --output FILES`, from where RocksDB ends to a place in the
    flushed log, and lie on the server's machine. They are copied; repeatable.
    """
    request = _request(files)
    with remote_target(server) as where:
        answer = where.ingest(request)
    if as_json:
        document = {"ingested": answer.ingested, "dispatched_offset": answer.dispatched_offset}
        print_json(document)
        return
    done = "taken in" if answer.ingested else "not needed: RocksDB had all of it"
    place = f"RocksDB now stands at physical offset {answer.dispatched_offset:,}"
    notes.print(f"{done}. {place}", highlight=False)


def _request(directory: Path) -> pb.IngestFilesRequest:
    """What the manifest says. Raises CommandError."""
    path = directory / _MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        return pb.IngestFilesRequest(
            files=[
                # By its name alone: the directory may have been moved as a whole.
                pb.IngestFilesRequest.File(
                    path=str((directory / Path(name).name).resolve()), family=family
                )
                for family, names in manifest["files"].items()
                for name in names
            ],
            start_offset=manifest["log_start"],
            dispatched_offset=manifest["log_end"],
            deletions=manifest["deletions"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        advice = "make them with: kvcq spark rebuild STORE --output DIRECTORY --begin … --end …"
        raise CommandError(f"{path} does not say what the files are: {error!r}", advice) from error
