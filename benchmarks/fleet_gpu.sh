#!/bin/sh
# Rows a second of fill_many on one GPU, small and narrator: at most 150 s. DEVICE=cpu QUICK=1 tries it out on five stories.
export PYTHONPATH="src:$PYTHONPATH" PYTORCH_CUDA_ALLOC_CONF="${PYTORCH_CUDA_ALLOC_CONF-expandable_segments:True}"
DEVICE="${DEVICE:-cuda}"
rows() { [ -n "$QUICK" ] && echo 5 || echo "$1"; }
samples=$([ -n "$QUICK" ] && echo 2 || echo 16)
kept=$(mktemp)
run() {
    timeout "$1" python3 benchmarks/fleet_gpu.py --device "$DEVICE" --samples "$samples" $2 2>&1 | tee -a "$kept"
}
run "${LIMIT:-45}" "--models small --rows $(rows 2048) --together 512 --profile $(rows 512)"
run "${LIMIT:-60}" "--models default --rows $(rows 512) --together 256 --profile $(rows 128)"
run "${LIMIT:-45}" "--models default --rows $(rows 512) --together 512"
grep -h 'rows/s' "$kept"
rm "$kept"
