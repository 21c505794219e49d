"""Moves a store from RocketMQ's files to RocksDB and back, and opens it in every phase.

`open_any` opens any store; its migration is a `Migrator`. `open_migrator` opens a stopped store for
a migration, `adopt` takes over a RocketMQ store, and `release.py` hands it back. The rooms, each of
which may only use those before it:

* `formats`: RocketMQ's byte layouts; `broker_config`: a broker's topics, groups and offsets;
* `waiting`: a broker's delayed messages and open transactions;
* `files`: queues and key index in files;
* `state`: migration.json;
* `sides`: files and RocksDB behind one dispatch; `fill`: fills one of them from the log;
* `plan`: the inventory before anything is changed;
* `steps`: the steps of a migration; `repair`: rebuilds what is lost.

`columnar` and `spark` read the same bytes in columns.
"""

from importlib import import_module

_WHERE = {
    "Migrator": "migration.migrator",
    "Opened": "migration.opening",
    "adopt": "migration.steps",
    "open_any": "migration.opening",
    "open_migrator": "migration.migrator",
}
__all__ = ["Migrator", "Opened", "adopt", "open_any", "open_migrator"]


def __getattr__(name: str) -> object:
    # Imported on demand, because worker processes need only a few modules.
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
