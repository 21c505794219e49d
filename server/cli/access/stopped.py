"""Users of a store that is stopped: its first administrator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from server.access import Limits, users_of_stopped_store
from server.cli.on_disk import unusable
from server.cli.terminal import BadRequestError, CommandError
from server.errors import ServerError
from server.process import prepare_to_open_stores
from server.settings import Sources
from store.errors import InvalidArgumentError, StoreError, StoreLockedError

if TYPE_CHECKING:
    from pathlib import Path


def add_to_store(
    data_dir: Path | None,
    key_file: Path | None,
    config_file: Path | None,
    name: str,
    *,
    admin: bool,
    secret: str,
    limits: dict[str, int],
) -> str:
    """The secret of the new user. What is not given stands in the file. Raises CommandError."""
    prepare_to_open_stores()
    try:
        flags: dict[str, object] = {"data_dir": data_dir, "key_file": key_file}
        given = {f"server.{name}": value for name, value in flags.items() if value}
        config = Sources(config_file, given, {}, dict(os.environ)).read().config
        data_dir = config.data_dir
        segment_bytes = config.store.get("segment_bytes")
        with users_of_stopped_store(data_dir, config.key_file, segment_bytes) as users:
            made = users.create(
                name, is_admin=admin, secret=secret or None, limits=Limits(**limits)
            )
    except StoreLockedError as error:
        raise CommandError(
            str(error), "leave out --data: the server that has it open adds users itself"
        ) from error
    except InvalidArgumentError as error:
        raise BadRequestError(str(error)) from error
    except ServerError as error:
        raise CommandError(str(error)) from error
    except StoreError as error:
        assert data_dir is not None
        raise unusable(error, data_dir, "the store cannot be opened: ") from error
    except OSError as error:
        raise BadRequestError(
            f"--data: {data_dir} cannot be used: {error.strerror or error}",
            "choose a directory that this user may make files in",
        ) from error
    return made.secret
