"""The child process that runs candidates of one dispatch on an NVIDIA GPU: as `measure` does on the CPU.

A faulting kernel costs this process its context, a hanging one its life: the parent starts another. Times are the
device's own, of launches in a CUDA graph, so that the host is not part of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.compiler.profiler.guarded_buffers import GUARD_BYTES, Buffer, Strided
from tilewright.compiler.profiler.measure import Bench, serve
from tilewright.compiler.profiler.processes import Message
from tilewright.runtime.cuda import CudaExecutable, DeviceArray
from tilewright.runtime.program import Package

_VISIT_US = 1000.0
_MOST_LAUNCHES = 200


@dataclass
class DeviceBuffer(Buffer):
    """Memory of one tensor on the device, guards included, with its image on the host."""

    device: DeviceArray = field(kw_only=True)

    @classmethod
    def on(cls, device_index: int, tensor: Strided) -> DeviceBuffer:
        host = Buffer.of(tensor)
        device = DeviceArray(host.spec.nbytes + 2 * GUARD_BYTES, device_index)
        made = cls(host.tensor, host.spec, host.memory, host.start, device=device)
        made.push()
        return made

    @property
    def address(self) -> int:
        return self.device.address + GUARD_BYTES

    @property
    def _image(self):
        return self.memory[self.start - GUARD_BYTES : self.start + self.spec.nbytes + GUARD_BYTES]

    def push(self) -> None:
        self.device.write(self._image)

    def pull(self) -> None:
        self._image[...] = self.device.read()


class CudaBench(Bench):
    """Candidates of one dispatch on the GPU that the request names."""

    def __init__(self, request: Message):
        super().__init__(request)
        self.launches: dict[int, int] = {}

    def make_buffer(self, tensor: Strided) -> Buffer:
        return DeviceBuffer.on(self.request["device_index"], tensor)

    def executable(self, package: Package) -> CudaExecutable:
        return CudaExecutable(package, device_index=self.request["device_index"], cuda_graph=False)

    def run(self, number: int) -> None:
        self.turn += 1
        executable = self.executables[number]
        executable.launch(
            [copies[self.turn % len(copies)].address for copies in self.arguments],
            [result.address for result in self.results],
        )
        executable.synchronize()

    def forget(self, number: int) -> None:
        super().forget(number)
        self.launches.pop(number, None)

    def run_clocked(self, number: int) -> None:
        """Runs a candidate; only the device knows how long it took, and says so of what is in a graph."""
        self.run(number)

    def at_least(self, number: int) -> float:
        return self.once(number)

    def once(self, number: int) -> float:
        return self._time(number, 1)

    def visit(self, number: int) -> float:
        """The mean of as many launches in a row as a millisecond holds, after as many that warm up."""
        if number not in self.launches:
            once = self._time(number, 1)
            self.launches[number] = max(1, min(_MOST_LAUNCHES, int(_VISIT_US / max(once, 0.1))))
        return self._time(number, self.launches[number])

    def _time(self, number: int, launches: int) -> float:
        """Microseconds of one launch; weights rotate on from where the last visit left them."""
        sets = [
            [copies[(self.turn + i) % len(copies)].address for copies in self.arguments]
            for i in range(max((len(copies) for copies in self.arguments), default=1))
        ]
        self.turn += launches
        outputs = [result.address for result in self.results]
        return self.executables[number].time(sets, outputs, launches, rounds=1)[0]


if __name__ == "__main__":
    serve(CudaBench)
