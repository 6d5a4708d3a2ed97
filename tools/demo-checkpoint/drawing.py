"""Pictures and clips from their numbers, in integer arithmetic, on the CPU or a GPU.

The Rust twin is `crates/demo-scenes/src/drawing.rs`; both give the same pixels and samples.
"""

import functools
import math

import torch

# The unit vectors to a star's five points, times 1024, and how far its lines lie from its centre:
# 1024 cos 72 degrees. A pentagram is what lies on the inner side of four or five of its five lines.
POINTS = [(0, -1024), (974, -316), (602, 828), (-602, 828), (-974, -316)]
LINE = 316

# A period of the sine in 1024 steps.
SINE = [round(32767 * math.sin(2 * math.pi * i / 1024)) for i in range(1024)]
# A beep fades in and out over 8 ms.
FADE = 128
LONGEST = 32000  # samples of a clip

GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)
MULTIPLIERS = 0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64)


def mix64(x):
    """`counter.mix64` over an int64 tensor, whose products wrap and whose shifts keep the sign."""
    shift = lambda x, n: (x >> n) & ((1 << (64 - n)) - 1)
    x = (x ^ shift(x, 30)) * MULTIPLIERS[0]
    x = (x ^ shift(x, 27)) * MULTIPLIERS[1]
    return x ^ shift(x, 31)


def signed(key):
    return key - (1 << 64) if key >= 1 << 63 else key


def covers(shape, x, y, r):
    """Which points (x, y) a shape of radius r round the origin covers; y grows downwards."""
    across, down = x.abs(), y.abs()
    circle = x * x + y * y < r * r
    square = 20 * torch.maximum(across, down) < 17 * r
    triangle = (5 * y < 4 * r) & (36 * across < 19 * (y + r))
    inner = sum((x * px + y * py < LINE * r).int() for px, py in POINTS)
    cross = ((10 * across < 3 * r) & (20 * down < 19 * r)) | (
        (10 * down < 3 * r) & (20 * across < 19 * r)
    )
    covered = torch.zeros_like(circle)
    for index, inside in enumerate([circle, square, triangle, inner >= 4, cross]):
        covered |= (shape == index) & inside
    return covered


def numbers(pictures):
    """What `render` needs of pictures of one size: [n, 9, 7] and [n, 5], int64."""
    tiles = torch.zeros(len(pictures), 9, 7, dtype=torch.long)
    tiles[..., 0] = -1
    rest = torch.zeros(len(pictures), 5, dtype=torch.long)
    for i, p in enumerate(pictures):
        for thing, o in zip(p.things, p.outlines):
            tiles[i, thing.place] = torch.tensor([thing.shape, o.x, o.y, o.radius, *o.rgb])
        rest[i] = torch.tensor([*p.background, p.noise, signed(p.noise_key)])
    return tiles, rest


def render(tiles, rest, columns, rows):
    """Pictures of one size as uint8 [n, 48 rows, 48 columns, 3], on the device of the numbers."""
    n, width, height, device = len(tiles), 16 * columns, 16 * rows, tiles.device
    shape, cx, cy, radius = (tiles[..., k].int()[..., None, None] for k in range(4))
    x = 16 * torch.arange(width, device=device, dtype=torch.int)[None, None, None, :] + 8 - cx
    y = 16 * torch.arange(height, device=device, dtype=torch.int)[None, None, :, None] + 8 - cy
    inside = covers(shape, x, y, radius)
    colour = tiles[:, :, None, None, 4:].short()
    ground = rest[:, None, None, None, :3].short()
    pixels = torch.where(inside[..., None], colour, ground)  # [n, 9, height, width, 3]
    pixels = pixels.view(n, 3, 3, height, width, 3).transpose(2, 3).reshape(n, -1, 3)
    # Six of a pixel's eight random bytes: two a channel, whose sum is triangular round 255.
    index = torch.arange(1, pixels.shape[1] + 1, device=device)
    bits = mix64(rest[:, 4:5] + index * GAMMA)
    noise = [((bits >> s) & 255) + ((bits >> (s + 8)) & 255) - 255 for s in (0, 16, 32)]
    noise = (torch.stack(noise, -1) * rest[:, None, 3:4]) >> 7
    pixels = (pixels + noise.short()).clamp(0, 255).to(torch.uint8)
    return pixels.view(n, 3 * height, 3 * width, 3)


def patches(pixels, columns, rows):
    """The processor's patches of 16 x 16 pixels: f32 [n, 9 columns rows, 768] in [0, 1], and the
    (x, y) of each, [patches, 2]."""
    n, across, down = len(pixels), 3 * columns, 3 * rows
    values = (pixels.float() / 255).view(n, down, 16, across, 16, 3).transpose(2, 3)
    return values.reshape(n, down * across, 768), _where(across, down, pixels.device)


@functools.cache
def _where(across, down, device):
    return torch.cartesian_prod(torch.arange(down), torch.arange(across)).flip(1).to(device)


def clip_numbers(clips):
    """What `samples` needs: [n, 4, 4] and [n, 3], int64."""
    beeps = torch.zeros(len(clips), 4, 4, dtype=torch.long)
    rest = torch.zeros(len(clips), 3, dtype=torch.long)
    for i, clip in enumerate(clips):
        for j, b in enumerate(clip.beeps):
            step = (b.hertz << 32) // 16000
            beeps[i, j] = torch.tensor([b.start, b.length, step, b.amplitude])
        rest[i] = torch.tensor([clip.samples, clip.noise, signed(clip.noise_key)])
    return beeps, rest


@functools.cache
def _sine(device):
    return torch.tensor(SINE, device=device)


def samples(beeps, rest, longest=None):
    """Clips as 16-bit samples in int64 [n, longest], zero after the end of each."""
    longest = longest or int(rest[:, 0].max())
    device = beeps.device
    index = torch.arange(longest, device=device)
    sine = _sine(device)
    wave = torch.zeros(len(beeps), longest, dtype=torch.long, device=device)
    for j in range(4):
        start, length, step, amplitude = (beeps[:, j, k : k + 1] for k in range(4))
        i = index - start
        fade = torch.minimum(i + 1, length - i).clamp(0, FADE)
        phase = ((i * step) & 0xFFFFFFFF) >> 22
        wave += (sine[phase] * fade * amplitude) >> 15
    bits = mix64(rest[:, 2:3] + (index + 1) * GAMMA)
    noise = ((bits & 255) + ((bits >> 8) & 255) - 255) * rest[:, 1:2]
    wave = (wave + (noise >> 7)).clamp(-32768, 32767)
    return wave * (index < rest[:, :1])


def audio_tokens(count):
    """Soft tokens of a clip: valid frames, halved twice, rounded up."""
    frames = sum(1 for end in range(160, count + 160, 160) if end < count)
    return ((frames + 1) // 2 + 1) // 2


@functools.cache
def _mel_constants(device):
    """The 128 triangles of the HTK mel scale over 257 bins, and a periodic Hann window."""
    hertz = lambda m: 700 * (10 ** (m / 2595) - 1)
    top = 2595 * math.log10(1 + 8000 / 700)
    edge = hertz(torch.linspace(0, top, 130, dtype=torch.float64))
    bins = torch.linspace(0, 8000, 257, dtype=torch.float64)[:, None]
    rise = (bins - edge[:-2]) / (edge[1:-1] - edge[:-2])
    fall = (edge[2:] - bins) / (edge[2:] - edge[1:-1])
    angle = 2 * math.pi * torch.arange(320, dtype=torch.float64) / 320
    window = (0.5 - 0.5 * torch.cos(angle)).float()
    triangles = torch.minimum(rise, fall).clamp(min=0)
    return triangles.to(device), window.to(device)


def mel(wave, lengths):
    """transformers' Gemma4AudioFeatureExtractor, to rounding, for a batch padded at its end: f32
    [n, frames, 128] and which frames are valid."""
    triangles, window = _mel_constants(wave.device)
    wave = torch.nn.functional.pad(wave, (160, -wave.shape[1] % 128))
    frames = wave.unfold(1, 321, 160)[..., :320] * window
    energy = torch.fft.rfft(frames.double(), n=512).abs() @ triangles
    ends = 160 * torch.arange(energy.shape[1], device=wave.device) + 160
    valid = ends[None] < lengths[:, None]
    return torch.log(energy + 0.001).float() * valid[..., None], valid
