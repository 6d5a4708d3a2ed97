"""The engine's speed beside another implementation's on the same checkpoint and ids, in
alternating rounds, as a table.

usage: speed_rounds.py SPEED mlx_lm|mlx_vlm CHECKPOINT INPUTS DECODED_TOKENS [ROUNDS [ANSWERS]]

SPEED is the executable of `cargo build --release -p prefill-engine --example speed`. A round is one
process of each, and each process answers ANSWERS (4) times, of which the first is left out: it pays
for what is set up once. Where SPEED uses MLX's CPU build, the other gets the same BLAS.
"""

import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

MEASURES = {
    "prefill_rate": ("prefill, tokens/s", 1.0, ",.0f"),
    "decode_rate": ("decode, tokens/s", 1.0, ",.1f"),
    "peak_memory": ("peak memory, GB", 1e9, ".2f"),
}


def blas_of(executable):
    """The BLAS that an executable loads, for others to use instead of their own."""
    listed = subprocess.run(["ldd", executable], capture_output=True, text=True).stdout
    found = re.search(r"lib(?:open)?blas\S* => (/\S+)", listed)
    return os.path.realpath(found[1]) if found else None


def answers(command, environment=None):
    """What a process reports, without its first answer."""
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ran.returncode != 0:
        sys.exit(f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}")
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines[1:]]


def cell(values, unit, form):
    return f"{min(values) / unit:{form}} – {max(values) / unit:{form}}"


def main():
    ours, peer, checkpoint, inputs, decoded, *rest = sys.argv[1:]
    rounds, count = (int(value) for value in (rest + [2, 4][len(rest) :])[:2])
    arguments = [checkpoint, inputs, decoded, str(count)]
    script = str(Path(__file__).parent / f"{peer}_speed.py")
    blas = blas_of(ours)
    environment = os.environ | ({"LD_PRELOAD": blas} if blas else {})
    print(f"{Path(checkpoint).name} beside {peer}, {rounds} rounds, BLAS {blas}", flush=True)
    found = {"prefill": [], peer: []}
    for _ in range(rounds):
        found["prefill"] += answers([ours, *arguments])
        found[peer] += answers([sys.executable, script, *arguments], environment)
    tokens = {(answer["prompt_tokens"], answer["decoded_tokens"]) for answer in sum(found.values(), [])}
    print("prompt and decoded tokens:", *tokens)
    print("| |", " | ".join(title for title, _, _ in MEASURES.values()), "|")
    print("|---" * (1 + len(MEASURES)) + "|")
    for name, of in found.items():
        cells = (
            cell([answer[key] for answer in of], unit, form)
            for key, (_, unit, form) in MEASURES.items()
        )
        print("|", name, "|", " | ".join(cells), "|")
    # Medians: other work on the machine slows single answers down.
    medians = {
        name: {key: statistics.median(answer[key] for answer in of) for key in MEASURES}
        for name, of in found.items()
    }
    ratios = (f"{medians['prefill'][key] / medians[peer][key]:.2f}" for key in MEASURES)
    print("| ratio of medians |", " | ".join(ratios), "|")
    host = [answer["host_microseconds_a_token"] for answer in found["prefill"]]
    median = statistics.median(host)
    print(
        f"host time outside MLX: {cell(host, 1.0, '.1f')} microseconds a token, median {median:.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
