"""Prints the table of README.md from the goldens of a model.

usage: table.py [MODEL]
"""

import json
import sys
from pathlib import Path

import cases
import qwen_cases

GOLDENS = Path(__file__).resolve().parent / "goldens"


def main():
    print("| case | prompt | noise | cache | mlx-vlm, first step | mlx-vlm | margin | features | bf16 |")
    print("|---|---|---|---|---|---|---|---|---|")
    model = sys.argv[1] if len(sys.argv) > 1 else "gemma4_e2b"
    for case in (cases.MODELS | qwen_cases.MODELS)[model]:
        golden = json.loads((GOLDENS / model / f"{case}.json").read_text())
        measured, mlx = golden["measured"], golden["mlx_vlm"]
        figures = (
            measured["f32_against_f64"],
            measured["cached_against_uncached"],
            mlx.get("largest_difference_first_step"),
            mlx.get("largest_difference"),
            measured["smallest_margin"],
            max(measured["features_f32_against_f64"], default=0.0),
            measured["bf16_against_f32"],
        )
        cells = " | ".join(f"{f:.1e}" if f else "" for f in figures)
        print(f"| {case} | {len(golden['prompt_ids'])} | {cells} |")


if __name__ == "__main__":
    main()
