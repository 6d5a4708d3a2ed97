#!/usr/bin/env python3
"""Image files of many kinds, and what Pillow makes of them.

Needs pillow 13.0.0 and numpy.
Usage: decode_cases.py FOLDER [PHOTO]
Writes the files and `cases.jsonl`, a line for each file and each shortened file: `file`, `cut` (length, or null),
`rgb` (SHA-256 of exif_transpose and convert('RGB'), null if Pillow fails), `white` (composited on white as the image
processors of transformers 5.24 do), `size`. The long test of prefill-media-preprocess reads them
(crates/media-preprocess/tests/long_decode.rs).
"""
import hashlib
import io
import json
import os
import struct
import sys
import warnings
import zlib

import numpy as np
from PIL import Image, ImageOps

warnings.simplefilter("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
PHOTO = os.path.join(HERE, "../../../crates/media-preprocess/tests/goldens/inputs/photo_161x123.png")


def sha(image):
    return hashlib.sha256(image.tobytes()).hexdigest()


def on_white(image):
    """transformers' convert_to_rgb."""
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, (255,) * 4), image).convert("RGB")
    return image.convert("RGB")


def describe(data):
    try:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        white = sha(on_white(image))
        image = image.convert("RGB")
        return dict(size=image.size, rgb=sha(image), white=white)
    except Exception as error:
        return dict(size=None, rgb=None, white=None, error=f"{type(error).__name__}: {error}"[:100])


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def raw_png(w, h, depth, color, rows, extra=b"", interlace=0):
    """A PNG from packed rows, for depths that Pillow does not write."""
    body = b"".join(b"\0" + row for row in rows)
    header = struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


def pngs(put, rng):
    w, h = 33, 21
    for depth, color, channels in [(1, 0, 1), (2, 0, 1), (4, 0, 1), (8, 0, 1), (16, 0, 1), (8, 2, 3), (16, 2, 3), (1, 3, 1), (2, 3, 1), (4, 3, 1), (8, 3, 1), (8, 4, 2), (16, 4, 2), (8, 6, 4), (16, 6, 4)]:
        length = (w * channels * depth + 7) // 8
        rows = [rng.integers(0, 256, length, dtype=np.uint8).tobytes() for _ in range(h)]
        palette = chunk(b"PLTE", rng.integers(0, 256, 3 << min(depth, 8), dtype=np.uint8).tobytes()) if color == 3 else b""
        put(f"raw_{depth}_{color}.png", raw_png(w, h, depth, color, rows, palette))
        if color == 3:
            put(f"raw_{depth}_{color}_trns.png", raw_png(w, h, depth, color, rows, palette + chunk(b"tRNS", b"\x10\x80")))
            put(f"raw_{depth}_{color}_short.png", raw_png(w, h, depth, color, rows, palette[:0] + chunk(b"PLTE", b"\x0a\x14\x1e\xff\0\0")))
        if color == 0:
            put(f"raw_{depth}_{color}_trns.png", raw_png(w, h, depth, color, rows, chunk(b"tRNS", b"\0\1")))
        if color == 2:
            key = rows[3][: 3 * depth // 8]
            key = key if depth == 16 else bytes(b for v in key for b in (0, v))
            put(f"raw_{depth}_{color}_trns.png", raw_png(w, h, depth, color, rows, chunk(b"tRNS", key)))
    put("gama.png", raw_png(4, 1, 8, 2, [bytes(range(12))], chunk(b"gAMA", struct.pack(">I", 45455))))


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    files = {}

    def put(name, data):
        files[name] = data

    def save(image, name, kind, **options):
        out = io.BytesIO()
        image.save(out, kind, **options)
        put(name, out.getvalue())

    rng = np.random.default_rng(11)
    photo = Image.open(sys.argv[2] if len(sys.argv) > 2 else PHOTO).convert("RGB")
    odd = photo.crop((3, 5, 3 + 133, 5 + 71))
    small = photo.resize((41, 27))
    noise = Image.fromarray(rng.integers(0, 256, (61, 83, 3), dtype=np.uint8))
    alpha = small.convert("RGBA")
    alpha.putalpha(Image.linear_gradient("L").resize(small.size))
    palette = small.quantize(19)

    for name, image in [("odd", odd), ("noise", noise), ("small", small)]:
        for quality in (30, 75, 95):
            for sub, label in [(0, "444"), (1, "422"), (2, "420"), ("4:1:1", "411")]:
                for prog in (False, True):
                    save(image, f"{name}_{quality}_{label}{'_prog' * prog}.jpg", "JPEG", quality=quality, subsampling=sub, progressive=prog)
        save(image.convert("L"), f"{name}_gray.jpg", "JPEG", quality=80)
        save(image.convert("CMYK"), f"{name}_cmyk.jpg", "JPEG", quality=80)
        save(image, f"{name}_rgb.jpg", "JPEG", quality=80, keep_rgb=True)
        save(image, f"{name}_restart.jpg", "JPEG", quality=80, restart_marker_rows=1)
        save(image, f"{name}_optimize.jpg", "JPEG", quality=80, optimize=True)
        for quality in (10, 60, 95):
            save(image, f"{name}_{quality}.webp", "WEBP", quality=quality)
        save(image, f"{name}_lossless.webp", "WEBP", lossless=True)
        save(image, f"{name}_exact.tif", "TIFF")
        for compression in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
            save(image, f"{name}_{compression}.tif", "TIFF", compression=compression)
        save(image, f"{name}.bmp", "BMP")
        save(image.quantize(64), f"{name}.gif", "GIF")
        save(image, f"{name}.png", "PNG")
    for one in (1, 2, 3):
        save(noise.crop((0, 0, one, 40)), f"thin_{one}.jpg", "JPEG")
        save(noise.crop((0, 0, 40, one)), f"flat_{one}.jpg", "JPEG")
        save(noise.crop((0, 0, one, 40)), f"thin_{one}.webp", "WEBP")
        save(noise.crop((0, 0, one, 40)), f"thin_{one}.png", "PNG")
    for orientation in range(0, 11):
        exif = Image.Exif()
        exif[0x112] = orientation
        for kind, ext in [("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "webp"), ("TIFF", "tif")]:
            save(small, f"exif_{orientation}.{ext}", kind, exif=exif)
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    save(small, "xmp.jpg", "JPEG", xmp=xmp)
    save(small, "xmp.webp", "WEBP", xmp=xmp)
    pngs(put, rng)
    save(alpha, "rgba.webp", "WEBP", quality=60)
    save(alpha, "rgba_lossless.webp", "WEBP", lossless=True)
    save(alpha, "rgba.tif", "TIFF")
    save(alpha.convert("LA"), "la.tif", "TIFF")
    save(alpha, "rgba.png", "PNG")
    save(small, "animated.webp", "WEBP", save_all=True, append_images=[small.rotate(180)], lossless=True)
    save(alpha, "animated_rgba.webp", "WEBP", save_all=True, append_images=[alpha.rotate(180)], quality=70)
    save(palette, "palette.png", "PNG")
    save(palette, "palette_trns.png", "PNG", transparency=4)
    save(palette, "palette.gif", "GIF")
    save(palette, "palette_trns.gif", "GIF", transparency=4)
    save(small.convert("L"), "gray.gif", "GIF")
    save(palette, "interlaced.gif", "GIF", interlace=1)
    save(palette, "palette.bmp", "BMP")
    save(palette, "palette.tif", "TIFF")
    for image, label in [(small.convert("1"), "1"), (small.convert("L"), "L")]:
        for kind, ext in [("BMP", "bmp"), ("TIFF", "tif"), ("PNG", "png")]:
            save(image, f"mode_{label}.{ext}", kind)
    for compression in ("group3", "group4"):
        save(small.convert("1"), f"{compression}.tif", "TIFF", compression=compression)
    gray16 = np.asarray(small.convert("L")).astype(np.uint16) * 9
    save(Image.fromarray(gray16), "gray16.tif", "TIFF")
    save(Image.fromarray(gray16), "gray16.png", "PNG")
    save(Image.fromarray(gray16.astype(np.int32) - 100), "int32.tif", "TIFF")
    save(Image.fromarray(gray16.astype(np.float32) * 0.37 - 20), "float.tif", "TIFF")
    save(small.convert("CMYK"), "cmyk.tif", "TIFF")
    save(alpha, "rgba.bmp", "BMP")
    # A first frame smaller than its screen, with and without a transparent colour.
    for clear in (False, True):
        body = files["palette_trns.gif" if clear else "palette.gif"]
        at = body.index(b"," + struct.pack("<HHHH", 0, 0, *small.size))
        put(f"inset{'_clear' * clear}.gif", body[:6] + struct.pack("<HH", 60, 50) + body[10:at] + b"," + struct.pack("<HHHH", 7, 9, *small.size) + body[at + 9 :])
        put(f"outset{'_clear' * clear}.gif", body[:6] + struct.pack("<HH", 20, 11) + body[10:])
    # A BMP of 16 bits a pixel, and compressed ones.
    w, h = 19, 7
    words = rng.integers(0, 65536, (h, w + 1), dtype=np.uint16)
    def bmp(bits, compression, body, colors=b"", extra=b""):
        offset = 14 + 40 + len(extra) + len(colors)
        header = struct.pack("<IiiHHIIiiII", 40, w, h, 1, bits, compression, len(body), 2835, 2835, len(colors) // 4, 0)
        return b"BM" + struct.pack("<IHHI", offset + len(body), 0, 0, offset) + header + extra + colors + body
    put("bits16_555.bmp", bmp(16, 0, words.tobytes()))
    put("bits16_565.bmp", bmp(16, 3, words.tobytes(), extra=struct.pack("<III", 0xF800, 0x7E0, 0x1F)))
    put("bits32.bmp", bmp(32, 0, rng.integers(0, 256, w * h * 4, dtype=np.uint8).tobytes()))
    colors = rng.integers(0, 256, 1024, dtype=np.uint8).tobytes()
    put("bits4.bmp", bmp(4, 0, rng.integers(0, 256, 12 * h, dtype=np.uint8).tobytes(), colors[:64]))
    rle = b"".join(bytes([9, i, 0, 5, 1, 2, 3, 4, 5, 0, 5, 200 + i, 0, 0]) for i in range(h)) + b"\0\1"
    put("rle8.bmp", bmp(8, 1, rle, colors))

    lines = []
    for name, data in sorted(files.items()):
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)
        lines.append(dict(file=name, cut=None, **describe(data)))
    shortened = [n for n, d in files.items() if len(d) < 3000 and (n.startswith(("small", "exif_6", "rgba", "palette", "animated", "gray16", "raw_8_2.", "group4", "bits", "cmyk")))]
    for name in sorted(shortened):
        for cut in range(len(files[name])):
            lines.append(dict(file=name, cut=cut, **describe(files[name][:cut])))
    with open(os.path.join(folder, "cases.jsonl"), "w") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
    print(len(files), "files,", len(lines), "cases")


main()
