"""The collector runs rarely while a model is compiled, and as before afterwards, whatever happens and in any thread."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

from tilewright.compiler.collector import rarely_collected


@pytest.fixture(autouse=True)
def thresholds():
    before = gc.get_threshold()
    gc.set_threshold(713, 11, 9)
    yield
    gc.set_threshold(*before)


def test_thresholds_come_back_from_the_outermost_of_several():
    with rarely_collected():
        inside = gc.get_threshold()
        assert inside[0] > 713
        with rarely_collected():
            assert gc.get_threshold() == inside
        assert gc.get_threshold() == inside
    assert gc.get_threshold() == (713, 11, 9)


def test_thresholds_come_back_after_an_error():
    with pytest.raises(ValueError, match="given up"), rarely_collected():
        raise ValueError("given up")
    assert gc.get_threshold() == (713, 11, 9)


def test_threads_that_overlap_restore_what_was_before_the_first():
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with rarely_collected():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with rarely_collected():
        thread.start()
        assert entered.wait(10)
    assert gc.get_threshold() != (713, 11, 9), "the other thread is still inside"
    leave.set()
    thread.join()
    assert gc.get_threshold() == (713, 11, 9)


def test_a_disabled_collector_stays_disabled():
    gc.disable()
    try:
        with rarely_collected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_process_can_end_without_a_last_collection():
    """What is in cycles goes with the process; what was registered for its end is called."""
    program = """
import weakref
from tilewright.compiler.collector import uncollected_at_exit
uncollected_at_exit()
class Node:
    def __del__(self):
        print("collected")
cycle = Node()
cycle.itself = cycle
class Other: pass
other = Other()
weakref.finalize(other, print, "finalized")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["finalized"]
