"""Every error the runtime raises, each saying who refused, which rule, what was found, and the remedy."""

from __future__ import annotations


class TilewrightError(Exception):
    """Base of all errors raised on purpose by tilewright."""


class PackageError(TilewrightError):
    """A package cannot be executed: a kernel object or a table is malformed, or weights do not match it."""


class KernelAssertError(TilewrightError):
    """A run-time check inside a kernel failed; the outputs of the call are undefined."""


class DeviceError(TilewrightError):
    """A GPU or its driver is missing or failed; `is_fatal` when this process can use the device no more."""

    def __init__(self, message: str, is_fatal: bool = False):
        super().__init__(message)
        self.is_fatal = is_fatal


class DeviceMemoryError(DeviceError, MemoryError):
    """A GPU has too little free memory."""


class EmulationError(TilewrightError):
    """An emulated kernel did something that a GPU does not allow; lists each finding with block, thread and operation."""


class ArgumentError(TilewrightError, ValueError):
    """An array passed to an executable has the wrong count, dtype, shape or device."""


class OtherLibraryError(ArgumentError):
    """None of a call's arrays comes from the library that its adapter speaks to."""


class ArtifactError(TilewrightError):
    """A file is no artifact, is damaged, or does not fit this machine or this version."""


class SettingError(TilewrightError, ValueError):
    """An environment variable of the runtime has a value that means nothing."""
