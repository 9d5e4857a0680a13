"""Real inputs at any size: text, pictures and speech from the assets.

Every function is a pure one of its arguments, so that the same sizes give the same input.
"""

from __future__ import annotations

import os
import wave
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import torch
from PIL import Image

ASSETS: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pliant-assets"
ROOT: Final = Path(__file__).resolve().parents[1]
PHOTOS: Final = ("coffee.png", "chelsea.png", "astronaut.png", "rocket.jpg", "china.jpg")


def asset(name: str) -> Path:
    """The folder of an asset. Raises FileNotFoundError with its name where it is absent."""
    folder = ASSETS / name
    if not folder.is_dir():
        raise FileNotFoundError(f"asset {name}: no folder {folder}")
    return folder


@cache
def _text() -> torch.Tensor:
    """This project's own README and ARCHITECTURE as token ids of MiniLM, without [CLS], [SEP]."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(asset("minilm") / "tokenizer.json"))
    tokenizer.no_truncation()
    words = "\n".join((ROOT / name).read_text() for name in ("README.md", "ARCHITECTURE.md"))
    return torch.tensor(tokenizer.encode(words, add_special_tokens=False).ids)


def sentences(batch: int, seq: int) -> dict[str, torch.Tensor]:
    """Passages of real text, [CLS] … [SEP], the first as long as `seq` and the others padded."""
    cls, sep = 101, 102
    ids, mask = (torch.zeros(batch, seq, dtype=torch.int64) for _ in range(2))
    text = _text()
    for row in range(batch):
        length = seq - row * 7 % max(seq, 1)
        begin = (row * 613 + seq) % (len(text) - 512)
        passage = torch.tensor([cls, *text[begin : begin + length - 2], sep])[:length]
        ids[row, :length] = passage
        mask[row, :length] = 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


@cache
def _picture(name: str) -> Image.Image:
    return Image.open(asset("images") / name).convert("RGB")


def _pixels(image: Image.Image) -> torch.Tensor:
    """[3, height, width], 0 … 255."""
    return torch.from_numpy(np.asarray(image, np.float32).transpose(2, 0, 1).copy())


@cache
def _cropped(name: str, side: int) -> torch.Tensor:
    image = _picture(name)
    scale = 256 / min(image.size)
    image = image.resize([round(s * scale) for s in image.size], Image.Resampling.BICUBIC)
    left, top = ((s - side) // 2 for s in image.size)
    return _pixels(image.crop((left, top, left + side, top + side)))


def photos(batch: int, side: int) -> torch.Tensor:
    """Photographs as classifiers want them, 0 … 255 [batch, 3, side, side]: the short side to 256,
    its centre; those after the first round are shifted sideways."""
    rows = [
        _cropped(PHOTOS[k % len(PHOTOS)], side).roll(k // len(PHOTOS), dims=-1)
        for k in range(batch)
    ]
    return _stack(rows, (3, side, side))


def _windows(picture: torch.Tensor, batch: int, height: int, width: int, down: int) -> torch.Tensor:
    """Windows of a picture continued periodically, each `down` below the last and further to the
    right; pixels as -1 … 1."""
    _, h, w = picture.shape
    rows = [
        picture[
            :,
            (torch.arange(height) + down * k)[:, None] % h,
            (torch.arange(width) + 101 * k + width) % w,
        ]
        for k in range(batch)
    ]
    return _stack(rows, (3, height, width)) / 255 * 2 - 1


def _stack(rows: Sequence[torch.Tensor], shape: tuple[int, ...]) -> torch.Tensor:
    return torch.stack(rows) if rows else torch.zeros(0, *shape)


def pages(batch: int, height: int, width: int) -> torch.Tensor:
    """Windows of a scanned page at its own scale, [batch, 3, height, width] in -1 … 1."""
    return _windows(_pixels(_picture("page.png")), batch, height, width, down=37)


def text_lines(batch: int, height: int, width: int) -> torch.Tensor:
    """A line of the page scaled to `height`, in windows of `width`; -1 … 1."""
    line = _picture("page.png").crop((0, 114, 180, 134))
    line = line.resize((round(180 * height / 20), height), Image.Resampling.BILINEAR)
    return _windows(_pixels(line), batch, height, width, down=0)


def headings(batch: int, height: int, width: int) -> torch.Tensor:
    """A heading of the page, every second one upside down, scaled to the size; -1 … 1."""
    if not height * width:
        return torch.zeros(batch, 3, height, width)
    heading = _picture("page.png").crop((0, 8, 240, 36))
    heading = heading.resize((width, height), Image.Resampling.BILINEAR)
    upright = _pixels(heading) / 255 * 2 - 1
    rows = [(upright if k % 2 == 0 else upright.flip(1, 2)).roll(k // 2, 2) for k in range(batch)]
    return _stack(rows, (3, height, width))


@cache
def _speech() -> torch.Tensor:
    with wave.open(str(asset("speech") / "speech_orig_16k.wav")) as f:
        samples = np.frombuffer(f.readframes(f.getnframes()), np.int16) / 32768
    seconds = np.arange(int(len(samples) / 16000 * 22050)) / 22050
    resampled = np.interp(seconds * 16000, np.arange(len(samples)), samples)
    return torch.from_numpy(resampled.astype(np.float32))


def speech(batch: int, samples: int = 43844) -> torch.Tensor:
    """English sentences at 22,050 Hz in overlapping pieces, [batch, samples, 1]."""
    sound = _speech()
    begins = [k * 9973 % (len(sound) - samples) for k in range(batch)]
    rows = [sound[b : b + samples] for b in begins]
    return _stack(rows, (samples,))[:, :, None]
