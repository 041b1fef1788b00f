#!/bin/bash
# States without labels and S in the read-out, all variants side by side on one GPU, in about SECONDS in all:
#
#     bash benchmarks/unsupervised_gpu.sh CARRY OUT SECONDS [words for benchmarks/unsupervised_states.py]
#
# CARRY/roc.tar.xz is the prepared corpus (a folder `roc`). OUT gets a JSON file and a log for every variant and seed, the
# weights of seed 0 in half precision where WEIGHTS=1, and the table, which is also printed last. Seeds come one after the
# other (ten measurements at once under MPS have crashed before), and trainings get two thirds of a seed's time at most:
# where that is too little for their updates they anneal by the clock, and the table says how many they made.
# To try it on a CPU: DEVICE=cpu MPS=0 SEEDS=0 and small sizes (tests/smoke/test_unsupervised.py).
set -u
carry=$1 out=$2 seconds=$3
shift 3
began=$(date +%s)
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
work=${WORK:-/tmp/unsupervised}
mkdir -p "$work" "$out"
tar xJf "$carry/roc.tar.xz" -C "$work"
if [ "${MPS:-1}" = 1 ]; then
    export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
    mkdir -p "$work/mps"
    nvidia-cuda-mps-control -d
    if ! timeout 60 python3 -c 'import torch; torch.ones(1, device="cuda").item()'; then
        echo "no MPS here: going on without"
        echo quit | nvidia-cuda-mps-control
        unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    fi
fi
seeds=(${SEEDS:-0 1})
one() {
    name=$1
    shift
    timeout -k 5 "$left" "${PYTHON:-python3}" benchmarks/unsupervised_states.py --data "$work/roc" --out "$out/$name.json" \
        --device "${DEVICE:-cuda}" --seconds $((left * 2 / 3)) --batch 256 --hidden 512 --latent 32 --steps 1700 \
        "$@" > "$out/$name.log" 2>&1 || echo "$name ended with $?"
}
for turn in "${!seeds[@]}"; do
    seed=${seeds[$turn]}
    left=$(((seconds - ($(date +%s) - began)) / (${#seeds[@]} - turn)))
    common=(--seed "$seed" "$@")
    [ "$seed${WEIGHTS:-}" = 01 ] && common+=(--weights)
    one "one-$seed" --states 1 "${common[@]}" &
    one "eight-$seed" --states 8 "${common[@]}" &
    one "eight-bias-$seed" --states 8 --state-bias "${common[@]}" &
    one "tags-$seed" --labels "${common[@]}" &
    one "tags-bias-$seed" --labels --state-bias "${common[@]}" &
    wait
done
[ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] && echo quit | nvidia-cuda-mps-control
"${PYTHON:-python3}" benchmarks/unsupervised_states.py --table "$out" | tee "$out/table.txt"
echo "$(ls "$out"/*.json | wc -l) variants, $(($(date +%s) - began)) s"
