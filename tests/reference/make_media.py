"""Draws the pictures, the clip and the sounds of the cases, a few KB each. Deterministic."""

import wave
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

MEDIA = Path(__file__).resolve().parent / "media"


def picture(width, height, phase):
    """Gradients, a slow wave and three shapes: smooth parts, edges and all three channels."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [
        255 * x / width,
        255 * y / height,
        127 + 100 * np.sin(x / 17 + y / 29 + phase),
    ]
    # Steps of 8 keep the PNG small.
    pixels = (np.stack(planes, -1) // 8 * 8).clip(0, 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    draw.rectangle([width // 8, height // 8, width // 3, height // 2], fill=(220, 30, 40))
    box = [width // 2, height // 3, width * 7 // 8, height * 7 // 8]
    draw.ellipse(box, fill=(20, 200, 90))
    draw.line([0, height, width, 0], fill=(10, 10, 240), width=3)
    return image


def sound(seconds, seed):
    """A rising tone, a chopped high one and noise, 16 bits at 16 kHz."""
    t = np.arange(int(seconds * 16000)) / 16000
    noise = np.random.default_rng(seed).normal(size=t.shape)
    rising = 0.3 * np.sin(2 * np.pi * (220 + 400 * t) * t)
    chopped = 0.2 * np.sin(2 * np.pi * 1300 * t) * (np.sin(2 * np.pi * 3 * t) > 0)
    samples = rising + chopped + 0.02 * noise
    return np.round(samples * 32767).astype("<i2")


def clip(frames):
    """A ball and a bar that move, 384 x 384: frames of this size are not resized."""
    for i in range(frames):
        image = Image.new("RGB", (384, 384), (240 - 12 * i, 230, 200 + 5 * i))
        draw = ImageDraw.Draw(image)
        left = 20 + 28 * i
        draw.ellipse([left, 60 + 10 * i, left + 90, 150 + 10 * i], fill=(220, 30, 40))
        draw.rectangle([300, 340 - 30 * i, 350, 384], fill=(20, 60, 200))
        yield image


def small_clip(frames):
    """A bar that moves and a ball that grows, 96 x 64: two by three merged patches of Qwen's."""
    for i in range(frames):
        image = Image.new("RGB", (96, 64), (30 + 8 * i, 90, 210 - 9 * i))
        draw = ImageDraw.Draw(image)
        draw.rectangle([8 * i, 8, 8 * i + 12, 40], fill=(230, 210, 40))
        draw.ellipse([60 - 2 * i, 40 - 2 * i, 64 + 2 * i, 44 + 2 * i], fill=(20, 160, 60))
        yield image


def write_wav(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.tobytes())


def main():
    MEDIA.mkdir(exist_ok=True)
    picture(150, 110, 1).save(MEDIA / "photo.png", optimize=True)
    picture(160, 120, 2).save(MEDIA / "photo.jpg", quality=85)
    picture(70, 210, 3).save(MEDIA / "tall.png", optimize=True)
    # 30 x 21 patches: the whole budget of 70 tokens, so neither resized nor padded.
    picture(480, 336, 4).quantize(48).convert("RGB").save(MEDIA / "exact.png", optimize=True)
    first, *rest = clip(10)
    first.save(
        MEDIA / "clip.png", save_all=True, append_images=rest, duration=200, loop=0, optimize=True
    )
    first, *rest = small_clip(11)
    first.save(
        MEDIA / "small.png", save_all=True, append_images=rest, duration=200, loop=0, optimize=True
    )
    write_wav(MEDIA / "long.wav", sound(1.37, 1))
    write_wav(MEDIA / "short.wav", sound(0.6, 2))


if __name__ == "__main__":
    main()
