"""Inputs that resemble what the models were trained on; on noise, most of what they find would be nothing."""

from __future__ import annotations

import numpy as np

# (centre x, centre y, radius x, radius y, colour) of the ovals of a face within −1…1, back to front.
SKIN = (210, 165, 140)
FACE = (
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


def face(random: np.random.Generator, batch: int, height: int, width: int) -> np.ndarray:
    """float64[batch, height, width, 3] in 0…255: a drawn face, which the face models do take for one."""
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    pictures = np.empty((batch, height, width, 3))
    for i in range(batch):
        dy, dx = random.uniform(-0.05, 0.05, 2)
        picture = np.broadcast_to(random.uniform(40, 120, 3), (height, width, 3))
        for cx, cy, rx, ry, colour in FACE:
            depth = 1 - ((x - dx - cx) / rx) ** 2 - ((y - dy - cy) / ry) ** 2
            share = (4 * depth).clip(0, 1)[..., None]
            picture = picture * (1 - share) + share * random.uniform(0.9, 1.1) * np.array(colour)
        pictures[i] = picture + random.normal(0, 3, picture.shape)
    return pictures.clip(0, 255)


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
