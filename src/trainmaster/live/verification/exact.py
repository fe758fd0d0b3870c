"""Operations whose results are known to the last bit, on any device.

A test for silent corruption needs a reference that the tested device did not make, or it only finds what goes wrong now
and then, never what goes wrong always. Floating-point results differ between models of processors, by the order of
sums. So the inputs here are whole numbers, so small that every product and every partial sum is a whole number that the
format holds exactly: then no order matters and nothing is ever rounded, on any device, by any library. (sqrt of a
square and a quotient without remainder are exact as well: IEEE 754 asks that they are rounded correctly.)

The reference is computed once a run in 64-bit integers, by the integer units, on the host's processor; and since that
may be wrong too, its digest is compared with one that is written here. Both were made by other means (`tests` does the
same sums with Python's own integers). The last operation has no such reference: it uses exp, tanh and division with
rounding, which is what models do. Its results are compared run against run, and device against device of one model.

Inputs of a zero are avoided, since the sum of signed zeros has a sign that depends on the order.
"""

import ctypes
import hashlib
from collections.abc import Callable
from typing import Any, Final

Tensors = tuple[Any, ...]

SIDE: Final = 64
DEPTH: Final = 256
"""A base product is SIDE x DEPTH by DEPTH x SIDE; larger ones repeat it, so their reference is repeated as well."""
LENGTH: Final = 4096
_SEED_STEP: Final = 104_729


class Operation:
    """One operation: how its inputs are made, what it does, and its digest if its result is exact."""

    def __init__(
        self,
        name: str,
        inputs: Callable[[Any], Tensors],
        reference: Callable[..., Any] | None,
        compute: Callable[..., Any],
        digest: str,
        dtype: str,
        tiles: tuple[bool, bool],
    ) -> None:
        self.name, self.inputs, self.reference, self.compute = name, inputs, reference, compute
        self.digest, self.dtype, self.tiles = digest, dtype, tiles

    @property
    def is_exact(self) -> bool:
        return self.reference is not None


class WrongReference(Exception):
    """The host's own integers gave another reference than the one that is known."""


def integers(torch: Any, rows: int, columns: int, seed: int, size: int) -> Any:
    """Odd whole numbers from -size to size, by a rule that needs nothing but 64-bit integers. `size` is odd."""
    assert size % 2 == 1, size
    at = torch.arange(rows * columns, dtype=torch.int64) + seed * _SEED_STEP
    mixed = (at * 2_654_435_761) & 0xFFFFFFFF
    mixed = (mixed ^ (mixed >> 15)) * 2_246_822_519 & 0xFFFFFFFF
    mixed = mixed ^ (mixed >> 13)
    return (2 * (mixed % (size + 1)) - size).reshape(rows, columns)


def _product_inputs(size: int, seed: int) -> Callable[[Any], Tensors]:
    def make(torch: Any) -> Tensors:
        return integers(torch, SIDE, DEPTH, seed, size), integers(torch, DEPTH, SIDE, seed + 1, size)

    return make


def _rows_inputs(count: int, size: int, seed: int) -> Callable[[Any], Tensors]:
    def make(torch: Any) -> Tensors:
        return tuple(integers(torch, SIDE, LENGTH // SIDE, seed + place, size) for place in range(count))

    return make


def _product(a: Any, b: Any) -> Any:
    return a @ b


def _mixed_reference(x: Any, y: Any, z: Any) -> Any:
    return x + (x * y).abs() + z


def _mixed(x: Any, y: Any, z: Any) -> Any:
    product = x * y
    return product / y + (product * product).sqrt() + z


def _bits(x: Any, y: Any) -> Any:
    """Shifts, exclusive ors and multiplications that overflow, as hashes have them."""
    for _ in range(4):
        x = (x ^ (x << 13)) * 6_364_136_223_846_793_005 + y
        x = x ^ (x >> 7) ^ (y << 17)
    return x


def _sums(x: Any) -> Any:
    return x.sum(dim=1)


def _chain(x: Any, y: Any) -> Any:
    """What a layer does: a scaled product, a softmax, a gate. Rounded everywhere."""
    scores = (x @ y.transpose(-1, -2)) * 0.01
    weights = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    mixed = (weights / weights.sum(dim=-1, keepdim=True)) @ y
    return mixed * mixed.tanh() * (mixed * mixed + 1e-3).rsqrt()


_BOTH, _ROWS = (True, True), (True, False)
OPERATIONS: Final = (
    Operation("matmul float32", _product_inputs(7, 1), _product, _product, "88c2e2be20830bed", "float32", _BOTH),
    Operation("matmul float64", _product_inputs(1048575, 3), _product, _product, "fae5c65e5fe5173d", "float64", _BOTH),
    Operation("matmul bfloat16", _product_inputs(1, 5), _product, _product, "a68fabf5155ec700", "bfloat16", _BOTH),
    Operation(
        "square float64", _rows_inputs(3, 4095, 7), _mixed_reference, _mixed, "44fcd94c8613b133", "float64", _ROWS
    ),
    Operation("bits int64", _rows_inputs(2, (1 << 30) - 1, 11), _bits, _bits, "f56d25a12af1c4fc", "int64", _ROWS),
    Operation("sum float32", _rows_inputs(1, 4095, 17), _sums, _sums, "158e58864b226917", "float32", _ROWS),
    Operation("layer float32", _rows_inputs(2, 7, 19), None, _chain, "", "float32", _ROWS),
)
"""In bfloat16 whole numbers up to 256 are exact, and 256 products of ones are no more; in float32 up to 2^24."""


def digest(tensor: Any) -> str:
    """Of a tensor of integers on the host."""
    whole = tensor.contiguous()
    data = ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())
    return hashlib.sha256(data).hexdigest()[:16]


def reference(torch: Any, operation: Operation) -> Any:
    """The right result in integers. Raises `WrongReference`; None for an operation that has none."""
    if operation.reference is None:
        return None
    right = operation.reference(*operation.inputs(torch))
    if digest(right) != operation.digest:
        raise WrongReference(f"{operation.name}: the host's integers gave {digest(right)}, not {operation.digest}")
    return right


def prepared(torch: Any, operation: Operation, device: str, tiles: int) -> tuple[Tensors, Any]:
    """Inputs on a device, each repeated `tiles` times, and the reference there, as words. Raises `WrongReference`."""
    dtype = getattr(torch, operation.dtype)
    rows, columns = (tiles if each else 1 for each in operation.tiles)
    given = operation.inputs(torch)
    if operation.tiles[1]:
        a, b = given
        laid = (a.repeat(rows, 1), b.repeat(1, columns))
    else:
        laid = tuple(each.repeat(rows, 1) for each in given)
    right = reference(torch, operation)
    if right is not None:
        right = right.repeat(*((rows, columns) if right.dim() == 2 else (rows,)))
        right = words(torch, right.to(dtype).to(device))
    return tuple(each.to(dtype).to(device) for each in laid), right


def words(torch: Any, tensor: Any) -> Any:
    """The bits of a tensor as integers of the same width."""
    width = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.contiguous().view(width)
