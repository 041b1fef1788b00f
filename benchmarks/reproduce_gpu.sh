#!/bin/bash
# The part of `fabula reproduce` that wants a GPU, in one call of some minutes on a bare machine; what comes back is one
# archive of records and texts (no weights, no sentences of the corpus), to be unpacked over REPORT at home:
#
#     bash benchmarks/reproduce_gpu.sh CARRY OUT SECONDS EPOCHS [--only …] [--model NAME=RUN] …
#
# CARRY/roc.tar.xz is the prepared corpus, CARRY/cloze.npz Story Cloze in its words
# (fabula.evaluation.cloze.prepare_cloze);
# CARRY/models.tar.xz (checkpoints, a folder each) and CARRY/report.tar.xz (records of an earlier call) may be missing.
# Words after the fourth go to `fabula reproduce`. FABULA_COMMIT names the commit where there is no repository.
set -u
carry=$1 out=$2 seconds=$3 epochs=$4
shift 4
began=$(date +%s)
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
work=${WORK:-/tmp/reproduce}
mkdir -p "$work/models" "$work/report" "$out"
tar xJf "$carry/roc.tar.xz" -C "$work" &
[ -f "$carry/models.tar.xz" ] && tar xJf "$carry/models.tar.xz" -C "$work/models" &
[ -f "$carry/report.tar.xz" ] && tar xJf "$carry/report.tar.xz" -C "$work/report" &
wait
models=()
for folder in "$work"/models/*/; do [ -f "$folder/config.json" ] && models+=(--model "$(basename "$folder")=$folder"); done
# Packing takes some seconds, and a unit that runs at the deadline gets twenty more.
left=$((seconds - ($(date +%s) - began)))
python3 -m fabula reproduce --data "$work/roc" --out "$work/report" --device "${DEVICE:-cuda}" --jobs "${JOBS:-5}" \
    --deadline $((left - 45)) --train-until $((left * ${TRAIN_SHARE:-68} / 100)) --cloze "$carry/cloze.npz" \
    --set train.epochs="$epochs" --set train.batch=512 --set train.learning_rate=2e-3 \
    --set train.learning_rate_dynamics=1e-3 --set train.schedule=cosine "${models[@]}" "$@"
tar cJf "$out/reproduction.tar.xz" -C "$work/report" records $([ -d "$work/report/texts" ] && echo texts)
echo "$(ls "$work"/report/records/*/* | wc -l) records, $(stat -c %s "$out/reproduction.tar.xz") bytes, $(($(date +%s) - began)) s"
