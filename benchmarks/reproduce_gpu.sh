#!/bin/bash
# The part of `fabula reproduce` that wants a GPU, on a bare machine with one card. Two parts, each in the background:
#
#     setsid nohup bash benchmarks/reproduce_gpu.sh plain  CARRY 420 >plain.out 2>&1 &      LM and S2S
#     setsid nohup bash benchmarks/reproduce_gpu.sh latent CARRY 1200 >latent.out 2>&1 &    LDS and every SLDS
#     bash benchmarks/reproduce_gpu.sh pack    plain|latent OUT     what is there so far, at any moment
#     bash benchmarks/reproduce_gpu.sh weights lm|slds      OUT     a model in 8 bits, in pieces of 15 MiB, with its hashes
#
# CARRY/roc.tar.xz is the prepared corpus (a folder `roc`). The number is a wall in seconds. More words go to `fabula reproduce`
# (--small, --set train.batch=256); --systems lm-seed2,s2s trains and measures these alone. FABULA_COMMIT names the commit where there is no repository. DEVICE=cpu tries it out.
#
# The rule is in the recipes: batch 128, rate 1e-3, patience 3, the best epoch kept. JOBS trainings run at a time, the most
# important first. A trained system is measured as soon as a slot is free. At TRAIN_UNTIL seconds what still trains is
# stopped, noted as not trained out, and measured. Called again, it goes on where it stood, while the machine is held.
# WORK keeps weights and resume states; memory is faster than the disk for them.
set -u
action=$1
if [ -z "${WORK:-}" ]; then
    WORK=/tmp/reproduce
    [ "$(df --output=avail -BG /dev/shm 2>/dev/null | tr -dc 0-9)" -ge 40 ] 2>/dev/null && WORK=/dev/shm/reproduce
fi
report=$WORK/report
device=${DEVICE:-cuda}
export PYTHONPATH=src:paper/src:$WORK/site:${PYTHONPATH:-} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True CUDA_MPS_PIPE_DIRECTORY=$WORK/mps CUDA_MPS_LOG_DIRECTORY=$WORK/mps-log
mkdir -p "$report/logs"
# Nothing is installed: the command is registered where Python looks for what packages register.
entry=$WORK/site/fabula_paper-0.dist-info
mkdir -p "$entry"
printf '[fabula.commands]\nreproduce = fabula_paper.command\n' >"$entry/entry_points.txt"
printf 'Metadata-Version: 2.1\nName: fabula-paper\nVersion: 0\n' >"$entry/METADATA"
try_card() { timeout 60 python3 -c 'import torch; x = torch.ones(999, 999, device="cuda"); print(float((x @ x).sum()))'; }
case $action in
plain | latent)
    carry=$2 seconds=$3
    shift 3
    begin=$(date +%s)
    if [ "$action" = plain ]; then
        : "${TRAIN_UNTIL:=$((seconds * 70 / 100))}" "${JOBS:=6}" "${BESIDE:=3}" "${MEASURE_JOBS:=5}"
    else
        : "${TRAIN_UNTIL:=$((seconds * 72 / 100))}" "${JOBS:=12}" "${BESIDE:=2}" "${MEASURE_JOBS:=10}"
    fi
    [ -d "$WORK/roc" ] || tar xJf "$carry/roc.tar.xz" -C "$WORK" || exit 1
    # One context for all processes, where the machine has it and it works.
    if [ "$device" = cuda ] && [ "${MPS:-1}" = 1 ] && command -v nvidia-cuda-mps-control >/dev/null; then
        mkdir -p "$WORK/mps" "$WORK/mps-log"
        nvidia-cuda-mps-control -d
        if ! try_card; then
            echo quit | nvidia-cuda-mps-control
            unset CUDA_MPS_PIPE_DIRECTORY
            echo "without MPS"
        fi
    else
        unset CUDA_MPS_PIPE_DIRECTORY
    fi
    spent=$(($(date +%s) - begin))
    exec python3 benchmarks/reproduce_gpu.py "$action" --report "$report" --data "$WORK/roc" --device "$device" \
        --seconds $((seconds - spent)) --train-until $((TRAIN_UNTIL - spent)) --jobs "$JOBS" --beside "$BESIDE" \
        --measure-jobs "$MEASURE_JOBS" "$@"
    ;;
pack)
    part=$2 out=$3
    mkdir -p "$out"
    # Records are written whole; a file that comes meanwhile is in the next pack.
    tar c -C "$report" --warning=no-file-changed --exclude runs --exclude toy . | xz -T4 -3 | split -b 15M - "$out/$part.tar.xz."
    tail -n 6 "$report/logs/driver-$part.log"
    for log in "$report"/logs/*.log; do grep -H -E 'Error|error' "$log" | tail -n 1; done
    for run in "$report"/runs/*/; do
        [ -f "$run/log.jsonl" ] && echo "$(basename "$run"): $(wc -l <"$run/log.jsonl") epochs, $(
            tail -n 1 "$run/log.jsonl" | grep -oE '"(valid_nll|seconds|rate)": [0-9.]+' | tr '\n' ' '
        )"
    done
    echo "$(find "$report/records" -name '*.json' | wc -l) records, $(cat "$out/$part.tar.xz."* | wc -c) bytes"
    ;;
weights)
    system=$2 out=$3
    mkdir -p "$out"
    python3 benchmarks/eight_bits.py "$report/runs/$system" "$WORK/$system-8bit" || exit 1
    tar c -C "$WORK" "$system-8bit" | split -b 15M - "$out/$system-8bit.tar."
    (cd "$out" && sha256sum "$system"-8bit.tar.* | tee "$system-8bit.sha256")
    ;;
*)
    echo "plain, latent, pack or weights" >&2
    exit 2
    ;;
esac
