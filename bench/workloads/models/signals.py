"""Inputs that resemble what the models were trained on; on noise, most of what they find would be nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

Oval: TypeAlias = tuple[float, float, float, float, tuple[int, int, int]]

# (centre x, centre y, radius x, radius y, colour) of ovals, back to front. A face is within −1…1.
SKIN = (210, 165, 140)
FACE: tuple[Oval, ...] = (
    (0, -0.15, 0.66, 0.85, (60, 40, 30)),
    (0, 0.05, 0.56, 0.78, SKIN),
    *((side * 0.24, -0.15, 0.15, 0.08, (168, 132, 112)) for side in (-1, 1)),
    *((side * 0.24, -0.14, 0.11, 0.05, (240, 240, 240)) for side in (-1, 1)),
    *((side * 0.24, -0.14, 0.05, 0.055, (50, 30, 20)) for side in (-1, 1)),
    *((side * 0.24, -0.3, 0.17, 0.035, (70, 45, 35)) for side in (-1, 1)),
    (0, 0.1, 0.06, 0.2, (235, 185, 157)),
    (0, 0.25, 0.13, 0.05, (158, 124, 105)),
    *((side * 0.05, 0.26, 0.03, 0.02, (84, 66, 56)) for side in (-1, 1)),
    (0, 0.48, 0.24, 0.08, (170, 80, 80)),
    (0, 0.48, 0.2, 0.012, (90, 40, 40)),
)
PERSON: tuple[Oval, ...] = (
    (0, 2.55, 1.75, 1.5, (52, 66, 110)),
    (0, 0.95, 0.3, 0.45, (190, 145, 120)),
    *FACE,
)


def face(random: np.random.Generator, batch: int, height: int, width: int) -> np.ndarray:
    """float64[batch, height, width, 3] in 0…255: a drawn face, which the face models do take for one."""
    return _faces(random, batch, *np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j])


def eye(random: np.random.Generator, batch: int, height: int, width: int) -> np.ndarray:
    """float64[batch, height, width, 3] in 0…255: what such a face has around its left eye."""
    return _faces(random, batch, *np.mgrid[-0.34 : 0.06 : height * 1j, 0.04 : 0.44 : width * 1j])


def portrait(random: np.random.Generator, batch: int, height: int, width: int) -> np.ndarray:
    """float64[batch, height, width, 3] in 0…255: head and shoulders in front of something else."""
    side = 1.9 * width / height
    y, x = np.mgrid[-1.5 : 2.3 : height * 1j, -side : side : width * 1j]
    pictures = image(random, batch, height, width)
    for picture in pictures:
        dy, dx = random.uniform(-0.2, 0.2, 2)
        picture[:] = _drawn(random, PERSON, picture, y - dy, x - dx)
    return pictures.clip(0, 255)


def _faces(random: np.random.Generator, batch: int, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    pictures = np.empty((batch, *x.shape, 3))
    for i in range(batch):
        dy, dx = random.uniform(-0.05, 0.05, 2)
        background = np.broadcast_to(random.uniform(40, 120, 3), pictures.shape[1:])
        pictures[i] = _drawn(random, FACE, background, y - dy, x - dx)
    return pictures.clip(0, 255)


def _drawn(
    random: np.random.Generator, ovals: Iterable[Oval], picture: np.ndarray, y: np.ndarray, x: np.ndarray
) -> np.ndarray:
    """The picture with the ovals in front, and a little grain."""
    for cx, cy, rx, ry, colour in ovals:
        depth = 1 - ((x - cx) / rx) ** 2 - ((y - cy) / ry) ** 2
        share = (4 * depth).clip(0, 1)[..., None]
        picture = picture * (1 - share) + share * random.uniform(0.9, 1.1) * np.array(colour)
    return picture + random.normal(0, 3, picture.shape)


def image(random: np.random.Generator, batch: int, height: int, width: int) -> np.ndarray:
    """float64[batch, height, width, 3] in 0…255: soft shapes with edges, shading and a little grain."""
    y, x = np.mgrid[0:height, 0:width]
    y, x = y / height, x / width
    pictures = np.empty((batch, height, width, 3))
    for i in range(batch):
        slope = random.uniform(-60, 60, (2, 3))
        picture = random.uniform(60, 190, 3) + y[..., None] * slope[0] + x[..., None] * slope[1]
        for _ in range(8):
            (cy, cx), (ry, rx) = random.uniform(0.1, 0.9, 2), random.uniform(0.05, 0.3, 2)
            inside = ((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1
            picture[inside] = 0.3 * picture[inside] + 0.7 * random.uniform(0, 255, 3)
        pictures[i] = picture + random.normal(0, 4, picture.shape)
    return pictures.clip(0, 255)


def music(random: np.random.Generator, batch: int, samples: int, rate: int = 22050) -> np.ndarray:
    """float64[batch, samples] within -1…1: decaying notes with overtones, and a little hiss."""
    t = np.arange(samples) / rate
    clips = random.normal(0, 1e-3, (batch, samples))
    for i in range(batch):
        for _ in range(6):
            start, pitch = random.uniform(0, samples / rate), 440 * 2 ** (random.integers(-24, 24) / 12)
            age = np.maximum(t - start, 0)
            tones = sum(np.sin(2 * np.pi * pitch * k * age) / k**2 for k in range(1, 6))
            clips[i] += 0.12 * tones * np.exp(-3 * age)
    return clips.clip(-1, 1)
