"""Ctrl-C at a chosen instruction of the product, as the interpreter delivers it.

A signal's handler runs in the main thread, at the next place where the interpreter looks for one:
behind a call into C, on entering a function, at a jump back. So the signal is set off before the
instruction, from C, without an instruction of its own in between. Counting instructions makes it
the same place each time.
"""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from _typeshed import TraceFunction

_ROOT = Path(__file__).resolve().parents[2]
_PRODUCT = ("store", "kvcq", "migration")

# As a trace function: its three arguments are nothing to it.
_set_off = ctypes.PyDLL(None).PyErr_SetInterrupt
_set_off.argtypes = (ctypes.py_object, ctypes.py_object, ctypes.py_object)
_set_off.restype = None


def interrupt(
    call: Callable[[], object], at: int, again: int = 0, packages: tuple[str, ...] = _PRODUCT
) -> bool:
    """Make the call, with SIGINT set off at its instruction number `at`; False if it has fewer.

    With `again`, once more so many instructions behind the first. Counted are instructions of these
    packages. Raises what the call raises, if
    that is not the KeyboardInterrupt. In the main thread only.
    """
    counted = tuple(f"{_ROOT / name}/" for name in packages)
    left = [at]
    more = [again] if again else []

    def enter(frame: FrameType, _event: str, _arg: object) -> TraceFunction | None:
        if not frame.f_code.co_filename.startswith(counted):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return count

    def count(frame: FrameType, event: str, _arg: object) -> TraceFunction:
        if event == "opcode":
            left[0] -= 1
            if left[0] <= 0:
                # From the next instruction on, until the handler has it, in whichever frame that
                # is: a trace function in Python would be the place where it has it.
                caller = frame.f_back
                while caller is not None:
                    if caller.f_trace is count:
                        caller.f_trace = _set_off
                    caller = caller.f_back
                return _set_off
        return count

    def handle(_signal: int, frame: FrameType | None) -> None:
        if more:
            left[0] = more.pop()
            while frame is not None:
                if frame.f_trace is _set_off:
                    frame.f_trace = count
                frame = frame.f_back
        else:
            sys.settrace(None)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    # Its callbacks are not the product's, and an exception in one of them goes nowhere.
    collecting = gc.isenabled()
    gc.disable()
    # Python 3.12 counts instructions only where some frame asked for it before.
    sys._getframe().f_trace_opcodes = True
    try:
        sys.settrace(enter)
        try:
            call()
        finally:
            sys.settrace(None)
        reached = left[0] <= 0
    except KeyboardInterrupt:
        reached = True
    finally:
        signal.signal(signal.SIGINT, before)
        if collecting:
            gc.enable()
    return reached
