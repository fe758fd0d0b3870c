"""A decoder of the Llama 3 shape: RMSNorm before each part, rotary positions, grouped-query attention, SwiGLU.

The initial weights are drawn parameter by parameter from a generator whose seed is a function of the job's seed and the
parameter's place, before anything is sharded, so they do not depend on how many ranks there are.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from trainmaster.core.checkpoint.order import mix


@dataclass(frozen=True)
class Shape:
    """Sizes of the model. `key_heads` divides `heads`, which divides `dim`."""

    vocabulary: int
    dim: int = 256
    layers: int = 6
    heads: int = 8
    key_heads: int = 4
    hidden: int = 704
    context: int = 128
    rope_theta: float = 500_000.0
    norm_epsilon: float = 1e-5


class Attention(nn.Module):
    """Causal attention in which groups of query heads share one key and value head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.key_heads = shape.heads, shape.key_heads
        self.head_dim = shape.dim // shape.heads
        self.query = nn.Linear(shape.dim, shape.heads * self.head_dim, bias=False)
        self.key = nn.Linear(shape.dim, shape.key_heads * self.head_dim, bias=False)
        self.value = nn.Linear(shape.dim, shape.key_heads * self.head_dim, bias=False)
        self.output = nn.Linear(shape.heads * self.head_dim, shape.dim, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        key = self.key(x).view(batch, length, self.key_heads, self.head_dim).transpose(1, 2)
        value = self.value(x).view(batch, length, self.key_heads, self.head_dim).transpose(1, 2)
        group = self.heads // self.key_heads
        key = _rotate(key, cosine, sine).repeat_interleave(group, dim=1)
        value = value.repeat_interleave(group, dim=1)
        mixed = functional.scaled_dot_product_attention(_rotate(query, cosine, sine), key, value, is_causal=True)
        result: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, length, -1))
        return result


class FeedForward(nn.Module):
    """SwiGLU: one half gates the other."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.dim, shape.hidden, bias=False)
        self.up = nn.Linear(shape.dim, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return result


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.dim, eps=shape.norm_epsilon)
        self.attention = Attention(shape)
        self.feed_forward_norm = nn.RMSNorm(shape.dim, eps=shape.norm_epsilon)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        result: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return result


class Llama(nn.Module):
    """Tokens to logits. The head has weights of its own (untied)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.dim, eps=shape.norm_epsilon)
        self.head = nn.Linear(shape.dim, shape.vocabulary, bias=False)
        cosine, sine = _rotations(shape)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        cosine, sine = self.get_buffer("cosine")[:length], self.get_buffer("sine")[:length]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cosine, sine)
        result: Tensor = self.head(self.norm(x))
        return result

    def draw_weights(self, seed: int) -> None:
        """Sets all weights as a function of the seed."""
        deep = 0.02 / (2 * self.shape.layers) ** 0.5
        for place, (name, parameter) in enumerate(self.named_parameters()):
            generator = torch.Generator().manual_seed(mix(seed, place) >> 1)
            with torch.no_grad():
                if parameter.dim() == 1:
                    parameter.fill_(1.0)
                else:
                    closing = name.endswith(("output.weight", "down.weight"))
                    parameter.normal_(0.0, deep if closing else 0.02, generator=generator)


def _rotations(shape: Shape) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary angles, (context, head_dim / 2)."""
    head_dim = shape.dim // shape.heads
    rates = shape.rope_theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(shape.context, dtype=torch.float64), rates)
    return angles.cos().float(), angles.sin().float()


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)
