"""GPUs through NVML: recovery action, remapped rows, errors, slowdown, links; each GPU under its own deadline.

GPUs are asked for by slot, from the list of PCIe devices and not by NVML's index: an index moves when a GPU is lost,
and one that is lost is named by its slot all the same. The library is loaded, asked and closed again in each round, so
that nothing of ours holds a device open when somebody resets it or loads another driver.

The text is that of `nvidia-smi -q`, since the reader of that form judges it. What a GPU does not support is left out.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainmaster.live.agent.health.probes.declare import Probe, Skipped
from trainmaster.live.agent.health.probes.sysfs import names_in, text_of

PROBE = Probe(
    name="nvml",
    what="GPUs (NVML): recovery action, remapped rows, errors, slowdown, NVLinks",
    unreadable="a GPU can't be asked: its driver may hang",
    module="trainmaster.live.agent.health.probes.nvml",
    deadline_s=10.0,
    kind="gpu",
)
_ACTIONS = ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX domain", "Reset", "Reboot")
_REASONS = {0x8: "HW Slowdown", 0x40: "HW Thermal Slowdown", 0x80: "HW Power Brake Slowdown"}
_NVLINKS = 18


def slots(root: Path) -> list[str]:
    """NVIDIA's GPUs by the list of devices."""
    base = root / "sys/bus/pci/devices"
    return [
        address[:-2]
        for address in names_in(base)
        if text_of(base / address / "vendor") == "0x10de"
        and (text_of(base / address / "class") or "").startswith(("0x0300", "0x0302"))
    ]


def items(root: Path) -> list[str]:
    listed = slots(root)
    library = _library(bool(listed))
    if listed:
        return listed
    found = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
    return [_slot(library.nvmlDeviceGetPciInfo(handle).busId) for handle in found]


def _slot(address: Any) -> str:
    text = address.decode() if isinstance(address, bytes) else str(address)
    return text.lower().removeprefix("0000").removesuffix(".0") if len(text) > 12 else text.lower()


_loaded: list[Any] = []


def _library(expected: bool) -> Any:
    """pynvml, with the library open. Raises `Skipped`, or `OSError` if GPUs are there and it can't be opened."""
    if _loaded:
        return _loaded[0]
    try:
        import pynvml
    except ImportError as error:
        raise Skipped("nvidia-ml-py is not installed: pip install trainmaster[gpu]") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if not expected:
            raise Skipped(f"no NVIDIA GPU, and no driver: {error}") from error
        raise OSError(f"GPUs are here, and NVML can't be opened: {error}") from error
    _loaded.append(pynvml)
    return pynvml


def close() -> None:
    for library in _loaded:
        library.nvmlShutdown()
    _loaded.clear()


def look(root: Path, item: str) -> str:
    library = _library(True)
    head = f"GPU {item}.0"
    try:
        handle = library.nvmlDeviceGetHandleByPciBusId(f"0000{item}.0".encode())
        return "\n".join((head, *_fields(library, handle)))
    except library.NVMLError as error:
        if error.value == library.NVML_ERROR_GPU_IS_LOST:
            return f"{head}\n    Error : GPU is lost"
        raise OSError(str(error)) from error


def _fields(library: Any, handle: Any) -> Iterator[str]:
    ask = _Asker(library, handle)
    yield from ask.each("    Product Name", library.nvmlDeviceGetName)
    yield from ask.each("    GPU UUID", library.nvmlDeviceGetUUID)
    yield from ask.each("    Serial Number", library.nvmlDeviceGetSerial)
    yield from ask.field("    GPU Recovery Action", library.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, _action)
    rows = ask(library.nvmlDeviceGetRemappedRows)
    if rows is not None:
        corrected, uncorrected, pending, failure = rows
        yield "    Remapped Rows"
        yield f"        Correctable Error : {corrected}"
        yield f"        Uncorrectable Error : {uncorrected}"
        yield f"        Pending : {_yes(pending)}"
        yield f"        Remapping Failure Occurred : {_yes(failure)}"
    yield from _errors(library, ask)
    reasons = ask(
        getattr(library, "nvmlDeviceGetCurrentClocksEventReasons", library.nvmlDeviceGetCurrentClocksThrottleReasons)
    )
    if reasons is not None:
        yield "    Clocks Event Reasons"
        yield from (f"        {name} : {'Active' if reasons & bit else 'Not Active'}" for bit, name in _REASONS.items())
    width, most = ask(library.nvmlDeviceGetCurrPcieLinkWidth), ask(library.nvmlDeviceGetMaxPcieLinkWidth)
    if width and most:
        yield "    Link Width"
        yield f"        Max : {most}x"
        yield f"        Current : {width}x"
    yield from _links(library, handle)


def _errors(library: Any, ask: "_Asker") -> Iterator[str]:
    """Volatile counts are since the driver was loaded, aggregate ones since the GPU was made."""
    yield "    ECC Errors"
    for name, counter in (("Volatile", library.NVML_VOLATILE_ECC), ("Aggregate", library.NVML_AGGREGATE_ECC)):
        yield f"        {name}"
        for memory, place in (("SRAM", library.NVML_MEMORY_LOCATION_SRAM), ("DRAM", library.NVML_MEMORY_LOCATION_DRAM)):
            for kind, error in (
                ("Correctable", library.NVML_MEMORY_ERROR_TYPE_CORRECTED),
                ("Uncorrectable", library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            ):
                count = ask(library.nvmlDeviceGetMemoryErrorCounter, error, counter, place)
                if count is not None:
                    yield f"            {memory} {kind} : {count}"


def _links(library: Any, handle: Any) -> Iterator[str]:
    states = []
    for link in range(_NVLINKS):
        try:
            states.append((link, library.nvmlDeviceGetNvLinkState(handle, link)))
        except library.NVMLError as error:
            if error.value == library.NVML_ERROR_GPU_IS_LOST:
                raise
            break
    if states:
        yield "    NvLink"
        yield from (f"        Link {link} State : {'Active' if state else 'Inactive'}" for link, state in states)


def _yes(value: Any) -> str:
    return "Yes" if value else "No"


def _action(value: int) -> str:
    return _ACTIONS[value] if 0 <= value < len(_ACTIONS) else f"Unknown ({value})"


class _Asker:
    """Asks one GPU. What it does not support is None; that it is lost is raised."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle

    def __call__(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(self._handle, *arguments)
        except self._library.NVMLError as error:
            if error.value in (self._library.NVML_ERROR_GPU_IS_LOST, self._library.NVML_ERROR_TIMEOUT):
                raise
            return None

    def each(self, name: str, question: Callable[..., Any]) -> Iterator[str]:
        value = self(question)
        if value is not None:
            yield f"{name} : {value.decode() if isinstance(value, bytes) else value}"

    def field(self, name: str, field: int, say: Callable[[int], str]) -> Iterator[str]:
        values = self(self._library.nvmlDeviceGetFieldValues, [field])
        if values is not None and values[0].nvmlReturn == 0:
            yield f"{name} : {say(int(values[0].value.uiVal))}"
