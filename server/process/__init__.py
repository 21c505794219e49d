"""What a process sets up before it serves, and how it ends. It uses no other code of ours."""

from server.process.allocator import give_back, private_bytes, tune_allocator
from server.process.appended import AppendedFile
from server.process.collector import calm_collector
from server.process.files import prepare_to_open_stores
from server.process.last_resort import end_process_soon
from server.process.line_limit import LineLimit, machine_of
from server.process.log_lines import JsonLines, TextLines
from server.process.loop import fast_loop
from server.process.outlet import Outlet, OutletHandler, as_json, in_words
from server.process.quiet import until_quiet
from server.process.service_manager import ServiceManager
from server.process.terminal import has_terminal

__all__ = [
    "AppendedFile",
    "JsonLines",
    "LineLimit",
    "Outlet",
    "OutletHandler",
    "ServiceManager",
    "TextLines",
    "as_json",
    "calm_collector",
    "end_process_soon",
    "fast_loop",
    "give_back",
    "has_terminal",
    "in_words",
    "machine_of",
    "prepare_to_open_stores",
    "private_bytes",
    "tune_allocator",
    "until_quiet",
]
