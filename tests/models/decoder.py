"""A Llama-style decoder: grouped-query attention, rotary positions, RMS norm, SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    layers: int = 12
    hidden: int = 1024
    heads: int = 16
    kv_heads: int = 4
    inner: int = 2816
    vocabulary: int = 32000
    base: float = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of the halves of the last dimension."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.dim = c.hidden // c.heads
        self.groups = c.heads // c.kv_heads
        self.q = nn.Linear(c.hidden, c.heads * self.dim, bias=False)
        self.k = nn.Linear(c.hidden, c.kv_heads * self.dim, bias=False)
        self.v = nn.Linear(c.hidden, c.kv_heads * self.dim, bias=False)
        self.out = nn.Linear(c.heads * self.dim, c.hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        q = rotate(self.q(x).view(b, s, -1, self.dim).transpose(1, 2), cos, sin)
        k = rotate(self.k(x).view(b, s, -1, self.dim).transpose(1, 2), cos, sin)
        v = self.v(x).view(b, s, -1, self.dim).transpose(1, 2)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.groups > 1)
        return self.out(h.transpose(1, 2).reshape(b, s, -1))


class Layer(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(c.hidden)
        self.attention = Attention(c)
        self.mlp_norm = RMSNorm(c.hidden)
        self.gate = nn.Linear(c.hidden, c.inner, bias=False)
        self.up = nn.Linear(c.hidden, c.inner, bias=False)
        self.down = nn.Linear(c.inner, c.hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    """Token ids [B, S] to the logits of all positions."""

    def __init__(self, c: Config = Config()) -> None:
        super().__init__()
        dim = c.hidden // c.heads
        self.embedding = nn.Embedding(c.vocabulary, c.hidden)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = RMSNorm(c.hidden)
        self.head = nn.Linear(c.hidden, c.vocabulary, bias=False)
        rates = c.base ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        at = torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32)
        angles = torch.outer(at, self.rates)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))
