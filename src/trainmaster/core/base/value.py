"""Values: frozen, keyword-only records that encode to the same bytes wherever they are made.

Everything that crosses a door of the core (events, effects, plans, parts of the state) is a `Value`. It is a
`msgspec.Struct`, so one definition gives the type, the check on decode and the wire form; pydantic does the same about
fifteen times slower and dataclasses give no wire form at all. Unknown fields are refused: a peer of another version
must be noticed, not half understood.
"""

from typing import Any, TypeVar, dataclass_transform

import msgspec

T = TypeVar("T")


class _KeywordOnly(msgspec.StructMeta):
    """msgspec's `kw_only` speaks of the fields of one class; here it holds for those of all subclasses."""

    def __new__(
        mcls: type["_KeywordOnly"], name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any
    ) -> "_KeywordOnly":
        options.setdefault("kw_only", True)
        return super().__new__(mcls, name, bases, body, **options)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, metaclass=_KeywordOnly, frozen=True, forbid_unknown_fields=True, gc=False):
    """Base of all frozen values."""

    def but(self: "V", **changes: Any) -> "V":
        """A copy with some fields changed. Unknown fields raise `AttributeError`-like errors from msgspec."""
        return msgspec.structs.replace(self, **changes)


V = TypeVar("V", bound=Value)

_encoder = msgspec.json.Encoder(order="deterministic")


def encode(value: object) -> bytes:
    """Canonical JSON: keys of mappings sorted, no spaces. Equal values give equal bytes."""
    return _encoder.encode(value)


def decode(data: bytes | str, kind: type[T]) -> T:
    """The inverse of `encode`. Raises `msgspec.ValidationError` or `msgspec.DecodeError` that names the path."""
    return msgspec.json.decode(data, type=kind)
