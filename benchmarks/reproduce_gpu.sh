#!/bin/bash
# The part of `fabula reproduce` that wants a GPU, in one call of some minutes on a bare machine; what comes back is one
# archive of records and texts (no weights, no sentences of the corpus), to be unpacked over REPORT at home:
#
#     [MPS=1] [JOBS=6] [TRAIN_SHARE=70] bash benchmarks/reproduce_gpu.sh CARRY OUT SECONDS [--only …] [--set …] …
#
# CARRY/roc.tar.xz is the prepared corpus, CARRY/cloze.npz Story Cloze in its words (evaluation/cloze.py: prepare_cloze);
# CARRY/models.tar.xz (checkpoints, a folder each) and CARRY/report.tar.xz (records of an earlier call) may be missing.
# Words after the third go to `fabula reproduce`. FABULA_COMMIT names the commit where there is no repository.
# TRAIN_SHARE: percent of the time after which every training ends at its epoch; its record says so, and the report.
# MPS=1 lets the processes share the card at once, which about doubles what six of them do. A process that is killed then
# takes the others with it, so nothing is killed before the end: trainings end themselves.
set -u
carry=$1 out=$2 seconds=$3
shift 3
began=$(date +%s)
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
work=${WORK:-/tmp/reproduce}
mkdir -p "$work/models" "$work/report" "$out"
tar xJf "$carry/roc.tar.xz" -C "$work" &
[ -f "$carry/models.tar.xz" ] && tar xJf "$carry/models.tar.xz" -C "$work/models" &
[ -f "$carry/report.tar.xz" ] && tar xJf "$carry/report.tar.xz" -C "$work/report" &
wait
if [ "${MPS:-0}" = 1 ]; then
    export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
    mkdir -p "$work/mps"
    nvidia-cuda-mps-control -d
    if ! timeout 60 python3 -c 'import torch; torch.ones(1, device="cuda").item()'; then
        echo "no MPS here: going on without"
        echo quit | nvidia-cuda-mps-control
        unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    fi
fi
models=()
for folder in "$work"/models/*/; do [ -f "$folder/config.json" ] && models+=(--model "$(basename "$folder")=$folder"); done
# A unit that runs at the deadline gets twenty seconds more, and packing takes some.
left=$((seconds - ($(date +%s) - began)))
python3 -m fabula reproduce --data "$work/roc" --out "$work/report" --device "${DEVICE:-cuda}" --jobs "${JOBS:-6}" \
    --deadline $((left - 40)) --train-until $((left * ${TRAIN_SHARE:-70} / 100)) --cloze "$carry/cloze.npz" \
    --set train.schedule=cosine --set train.keep=last "${models[@]}" "$@"
[ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] && echo quit | nvidia-cuda-mps-control
tar cJf "$out/reproduction.tar.xz" -C "$work/report" records $([ -d "$work/report/texts" ] && echo texts)
echo "$(ls "$work"/report/records/*/* | wc -l) records, $(stat -c %s "$out/reproduction.tar.xz") bytes, $(($(date +%s) - began)) s"
