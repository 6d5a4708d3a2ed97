#!/usr/bin/env python3
"""Small audio files of many kinds, and what ffmpeg and libsndfile make of them.

Needs numpy 2.4, soundfile 0.14 (libsndfile 1.2.2), safetensors, and ffmpeg 5.1 with libmp3lame, libvorbis and libopus.
Usage: format_cases.py FOLDER
Writes the files, `formats.json` (for each its rate, channels and, for each reference, the number of sample frames and
the SHA-256 of the mean of its channels as little-endian f32) and `formats.safetensors` (for the lossy ones every 11th
sample of that mean). The channels' mean is numpy's, in f32, as librosa takes it.
"""
import hashlib
import json
import os
import struct
import subprocess
import sys

import numpy as np
import soundfile
from safetensors.numpy import save_file

RATE = 44100
STRIDE = 11


def ffmpeg(*arguments):
    *before, output = arguments
    exact = ["-fflags", "+bitexact", "-flags", "+bitexact"]  # no dates, no random serial numbers
    command = ["ffmpeg", "-nostdin", "-v", "error", "-y", *before, *exact, output]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


def source(frames, channels=2, seed=5):
    """A rising tone in one channel, a falling one in the other, a little noise: reproducible, and unlike itself."""
    rng = np.random.default_rng(seed)
    t = np.arange(frames) / RATE
    columns = []
    for c in range(channels):
        start, slope = (200 + 150 * c, 2500) if c % 2 == 0 else (3000 - 100 * c, -2000)
        columns.append(0.4 * np.sin(2 * np.pi * (start * t + slope * t * t / 2)) + 0.01 * rng.standard_normal(frames))
    return np.stack(columns, 1)


def write(name, data, subtype, rate=RATE, **more):
    soundfile.write(name, data, rate, subtype=subtype, **more)
    with open(name, "r+b") as file:
        peak = file.read().find(b"PEAK")
        if peak > 0:  # holds the time of writing
            file.seek(peak + 12)
            file.write(bytes(4))


def make():
    short, long, six = source(1500), source(int(0.4 * RATE)), source(300, 6)
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ALAW", "ULAW", "MS_ADPCM", "IMA_ADPCM"):
        write(f"wav_{subtype.lower()}.wav", short, subtype)
    write("wav_6ch.wav", six, "PCM_16")
    write("wav_9ch.wav", source(200, 9), "FLOAT", format="WAVEX")
    write("wav_extensible.wav", short, "PCM_24", format="WAVEX")
    write("rf64.wav", short, "PCM_16", format="RF64")
    for bits in (16, 24):
        write(f"flac{bits}.flac", short, f"PCM_{bits}")
    write("aiff16.aiff", short, "PCM_16")
    write("aiff24.aiff", short, "PCM_24")
    write("aifc_float.aifc", short, "FLOAT", format="AIFF")
    write("caf16.caf", short, "PCM_16")
    write("caf_alac.caf", short, "ALAC_16")
    raw = "wav_pcm_16.wav"
    # To a pipe: nobody goes back to write the sizes.
    open("wav_streamed.wav", "wb").write(ffmpeg("-i", raw, "-f", "wav", "-"))
    data = open(raw, "rb").read()
    open("wav_zero_sizes.wav", "wb").write(data[:4] + bytes(4) + data[8:40] + bytes(4) + data[44:])
    open("wav_chunk_after.wav", "wb").write(data + b"LIST" + struct.pack("<I", 26) + b"INFOISFT" + struct.pack("<I", 14) + b"a maker's name")
    open("wav_truncated.wav", "wb").write(data[:-1001])
    for name, arguments in {
        "flac.ogg": ["-c:a", "flac"], "flac.mp4": ["-c:a", "flac", "-strict", "-2"], "flac.mka": ["-c:a", "flac"], "alac.m4a": ["-c:a", "alac"], "alac_ffmpeg.caf": ["-c:a", "alac"],
        "pcm.mov": ["-c:a", "pcm_s16be"], "aifc_sowt.aifc": ["-c:a", "pcm_s16le", "-f", "aiff"],
        "wav_adpcm_ima_ffmpeg.wav": ["-c:a", "adpcm_ima_wav"],
    }.items():
        ffmpeg("-i", raw, *arguments, name)
    write("long.wav", long, "PCM_16")
    tags = ["-id3v2_version", "3", "-metadata", "title=A title"]
    for name, arguments in {
        "mp3_cbr.mp3": ["-c:a", "libmp3lame", "-b:a", "96k", "-id3v2_version", "0"],
        "mp3_vbr_id3.mp3": ["-c:a", "libmp3lame", "-q:a", "5", *tags],
        "mp3_no_xing.mp3": ["-c:a", "libmp3lame", "-b:a", "96k", "-write_xing", "0", "-id3v2_version", "0"],
        "mp3_mpeg2_mono.mp3": ["-c:a", "libmp3lame", "-ar", "22050", "-ac", "1", "-b:a", "48k"],
        "layer2.mp2": ["-c:a", "mp2", "-b:a", "128k"],
        "vorbis.ogg": ["-c:a", "libvorbis", "-q:a", "3"], "vorbis.webm": ["-c:a", "libvorbis", "-q:a", "3"],
        "aac.aac": ["-c:a", "aac", "-b:a", "96k"], "aac.m4a": ["-c:a", "aac", "-b:a", "96k"],
        "aac.mov": ["-c:a", "aac", "-b:a", "96k"], "aac.mkv": ["-c:a", "aac", "-b:a", "96k"],
        "mp3.mp4": ["-c:a", "libmp3lame", "-b:a", "96k"],
        "opus.ogg": ["-c:a", "libopus", "-b:a", "64k"], "opus.webm": ["-c:a", "libopus", "-b:a", "64k"],
        "opus.mka": ["-c:a", "libopus", "-b:a", "64k"], "opus.mp4": ["-c:a", "libopus", "-b:a", "64k", "-strict", "-2"],
    }.items():
        ffmpeg("-i", "long.wav", *arguments, name)
    video = ["-f", "lavfi", "-i", "testsrc2=size=32x32:rate=10:duration=0.4"]
    ffmpeg(*video, "-i", "long.wav", "-c:v", "mpeg4", "-c:a", "aac", "-b:a", "96k", "video.mp4")
    ffmpeg(*video, "-i", "long.wav", "-c:v", "mpeg4", "-c:a", "libvorbis", "-q:a", "3", "video.mkv")
    ffmpeg("-i", raw, "-c:a", "flac", "-frame_size", "256", "flac_truncated.flac")
    cut = open("flac_truncated.flac", "rb").read()
    start = cut.index(b"\xff\xf8")  # after 8 KiB of padding
    cut = cut[:4] + b"\x80" + cut[5:42] + cut[start:]  # STREAMINFO is the only block of metadata now
    open("flac_truncated.flac", "wb").write(cut[: len(cut) * 2 // 3])
    cut = ffmpeg("-i", "long.wav", "-c:a", "libvorbis", "-q:a", "3", "-page_duration", "50000", "-f", "ogg", "-")
    open("vorbis_truncated.ogg", "wb").write(cut[: len(cut) * 2 // 3])
    cut = open("mp3_cbr.mp3", "rb").read()
    open("mp3_truncated.mp3", "wb").write(cut[: len(cut) * 2 // 3])
    ffmpeg(*video, "-c:v", "mpeg4", "video_silent.mp4")
    os.remove("long.wav")


def describe(samples, rate):
    mean = samples.mean(axis=1) if samples.shape[1] > 1 else samples[:, 0]
    mean = np.ascontiguousarray(mean, "<f4")
    return mean, {"frames": len(mean), "rate": rate, "sha256": hashlib.sha256(mean.tobytes()).hexdigest()}


def by_ffmpeg(name):
    probe = subprocess.run(
        ["ffprobe", "-v", "error", "-select_streams", "a:0", "-show_entries", "stream=sample_rate,channels", "-of", "csv=p=0", name],
        stdout=subprocess.PIPE, check=True,
    ).stdout.decode().strip().split(",")
    rate, channels = int(probe[0]), int(probe[1])
    samples = np.frombuffer(ffmpeg("-i", name, "-map", "a:0", "-f", "f32le", "-c:a", "pcm_f32le", "-"), "<f4")
    return samples.reshape(-1, channels), rate


def by_sndfile(name):
    samples, rate = soundfile.read(name, dtype="float32", always_2d=True)
    return samples, rate


LOSSY = (".mp3", ".mp2", ".aac", ".webm", ".mp4")


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    os.chdir(sys.argv[1])
    make()
    cases, tensors = {}, {}
    for name in sorted(os.listdir(".")):
        if name.startswith("formats."):
            continue
        case = {}
        for reference, decode in (("ffmpeg", by_ffmpeg), ("sndfile", by_sndfile)):
            try:
                samples, rate = decode(name)
            except Exception:
                case[reference] = None
                continue
            case["channels"] = samples.shape[1]
            mean, case[reference] = describe(np.array(samples), rate)
            lossy = name.endswith(LOSSY) or name.startswith(("vorbis", "opus", "aac", "video", "wav_adpcm", "wav_ima", "wav_ms"))
            if lossy:
                tensors[f"{name}.{reference}"] = mean[::STRIDE].copy()
        cases[name] = case
    version = subprocess.run(["ffmpeg", "-version"], stdout=subprocess.PIPE).stdout.decode().split()[2]
    versions = {"ffmpeg": version, "libsndfile": soundfile.__libsndfile_version__, "numpy": np.__version__}
    json.dump({"versions": versions, "stride": STRIDE, "files": cases}, open("formats.json", "w"), indent=1)
    save_file(tensors, "formats.safetensors")


main()
