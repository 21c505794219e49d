"""Where settings come from: defaults, a TOML file, the environment, flags; later sources win.

`names.py` knows every setting, `conversion.py` converts values to text and back, `sources.py` reads
the sources, `running.py` reloads settings of a running server, `broker.py` imports those of a
RocketMQ broker. Settings are declared in server/config.py and store/config.py; nothing else of the
server is used.
"""

from server.settings.broker import Imported, import_broker_conf
from server.settings.conversion import plain_value, toml_value
from server.settings.names import KNOWN, Known, variable_of
from server.settings.running import Change, Reloaded, RunningSettings
from server.settings.sources import Origin, Settings, Sources

__all__ = [
    "KNOWN",
    "Change",
    "Imported",
    "Known",
    "Origin",
    "Reloaded",
    "RunningSettings",
    "Settings",
    "Sources",
    "import_broker_conf",
    "plain_value",
    "toml_value",
    "variable_of",
]
