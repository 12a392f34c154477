"""Runs commands within time limits. A command that exceeds its own, or is interrupted, ends with all that it started."""

import os
import signal
import subprocess
import sys
import time

from ledger.entries import LedgerError

COMMAND_SECONDS = 900


class Limit:
    """A time by which all commands of a stage must have ended; without seconds there is none."""

    def __init__(self, seconds=None):
        self.seconds, self.end = seconds, None if seconds is None else time.monotonic() + seconds

    def of_command(self):
        """Seconds that one command may take."""
        return COMMAND_SECONDS if self.end is None else min(COMMAND_SECONDS, self.end - time.monotonic())


def end_on_signals():
    """SIGTERM ends the program as Ctrl-C does, so that its commands end too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def _kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.communicate()


def output_of(words, folder, limit):
    """What a command prints. Errors: LedgerError, if it cannot be run, takes too long or fails."""
    shown, seconds = " ".join(words), limit.of_command()
    if seconds <= 0:
        raise LedgerError(f"not begun, since the limit of {limit.seconds} s for the whole stage is over: {shown}")
    try:
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True)
    except OSError as error:
        raise LedgerError(f"{shown}: {error}") from error
    try:
        out, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        _kill_group(process)
        raise LedgerError(f"{shown}: ended after {seconds:.0f} s") from error
    except BaseException:
        _kill_group(process)
        raise
    if process.returncode:
        last = (complaint or out).strip().splitlines()[-1:]
        raise LedgerError(f"{shown}: exit status {process.returncode}: {''.join(last)}")
    return out
