"""Moves a store from RocketMQ's files to RocksDB and back, and opens it in every phase.

`open_any` opens every store, and `Migrator` is its migration; `open_migrator` opens a stopped store
for one, `adopt` takes over a RocketMQ store, and `release.py` gives it back. The rooms, each of
which may only use those before it:

* `formats`: RocketMQ's byte layouts; `broker_config`: what a broker stores beside them;
* `waiting`: what a broker has not delivered yet;
* `files`: queues and key index in files;
* `state`: migration.json and its meaning;
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
    # Only when it is asked for: a worker that needs bytes and routes does without the rest.
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
