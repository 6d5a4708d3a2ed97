"""Compares the regenerated files with the committed ones, and fails if they differ.

Figures that depend on the machine (rounding noise, the last bits of logits) may move by less
than the tolerance of the parity tests; everything else must be the same.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load, load_file

HERE = Path(__file__).resolve().parent
# The largest difference of logits that a right f32 implementation may show: see README.md.
TOLERANCE = 2e-4
MEASURED = ("measured", "mlx_vlm", "reference")


def committed(path):
    command = ["git", "show", f"HEAD:./{path.name}"]
    return subprocess.run(command, cwd=path.parent, check=True, capture_output=True).stdout


def differences(path):
    if path.suffix == ".json":
        old, new = json.loads(committed(path)), json.loads(path.read_text())
        return [k for k in sorted(old | new) if k not in MEASURED and old.get(k) != new.get(k)]
    old, new = load(committed(path)), load_file(path)
    if {k: v.shape for k, v in old.items()} != {k: v.shape for k, v in new.items()}:
        return ["names or shapes"]
    return [k for k in old if not np.allclose(old[k], new[k], rtol=1e-4, atol=TOLERANCE)]


def main():
    failed = False
    for path in sorted((HERE / "goldens").rglob("*")):
        if path.is_file() and (found := differences(path)):
            failed = True
            print(f"{path.relative_to(HERE)}: {', '.join(found)}")
    status = ["git", "status", "--short", "--", "models", "media", "../../assets"]
    changed = subprocess.run(status, cwd=HERE, check=True, capture_output=True, text=True).stdout
    print(changed, end="")
    sys.exit(failed or bool(changed))


if __name__ == "__main__":
    main()
