"""Where settings come from: defaults, a TOML file, the environment, flags; the later one wins.

`names.py` knows every setting, `conversion.py` makes values of text and text of values,
`sources.py` reads the file and the rest, `running.py` takes what may change while the server runs,
`broker.py` reads those of a RocketMQ broker.
What the settings mean is declared in server/config.py and store/config.py; from the rest of the
server it needs nothing.
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
