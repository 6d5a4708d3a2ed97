#!/bin/sh
# Makes the environment and regenerates every description, medium and golden.
#
#   tests/reference/make.sh            everything
#   tests/reference/make.sh check      the same, then fails if anything but rounding noise changed
#   tests/reference/make.sh FILE.py    one script
#
# PREFILL_REFERENCE_PYTHON names a Python that has requirements.txt already. Otherwise a virtual
# environment (several GB: PyTorch) is made once in tests/reference/.venv.
set -eu
cd "$(dirname "$0")"
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error HF_HUB_DISABLE_PROGRESS_BARS=1

python=${PREFILL_REFERENCE_PYTHON:-.venv/bin/python}
if [ -z "${PREFILL_REFERENCE_PYTHON:-}" ] && ! cmp -s requirements.txt .venv/requirements.txt; then
    python3 -m venv .venv
    .venv/bin/python -m pip install --quiet -r requirements.txt
    cp requirements.txt .venv/ # written last: a half-made environment is made again
fi

case "${1:-all}" in
all | check)
    for script in make_models make_media make_goldens make_text_goldens make_sampler_goldens \
        make_qwen_models make_qwen_goldens \
        make_demo_picture make_demo_goldens \
        prompt/tokenizers_of prompt/make_splices prompt/make_renders; do
        "$python" "$script.py"
    done
    ;;
*)
    "$python" "$@"
    ;;
esac

if [ "${1:-}" = check ]; then
    "$python" check_goldens.py
fi
