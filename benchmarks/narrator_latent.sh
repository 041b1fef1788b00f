#!/bin/bash
# Ways to put Z under the narrator, side by side on one GPU (at most six minutes), and their table.
#
#     bash benchmarks/narrator_latent.sh DATA OUT [OPTIONS of narrator_latent.py]
#
# DATA holds train.csv and valid.csv, with their tags where VADER is not installed. A way that is cut off at its time keeps
# what it had measured. OUT then holds table.md, records.jsonl and log.
set -u
data=$1 out=$2; shift 2
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=true
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
work=${WORK:-$(mktemp -d)} python=${PYTHON:-python3} limit=${LIMIT:-350}
mkdir -p "$out"
timeout "$limit" "$python" "$here/benchmarks/narrator_latent.py" prepare --data "$data" --out "$work" "$@" || exit 1
echo "prepared after $SECONDS s"
for way in none slow anchored hidden plan; do
    OMP_NUM_THREADS=${OMP_NUM_THREADS:-3} timeout $((limit - SECONDS)) "$python" "$here/benchmarks/narrator_latent.py" \
        way --way "$way" --out "$work" "$@" > "$work/$way.log" 2>&1 &
done
wait
for way in none slow anchored hidden plan; do
    echo "== $way: $(tail -n 1 "$work/$way.log" | cut -c 1-200)"
    sed "s/^/$way: /" "$work/$way.log" >> "$out/log"
    { tr -d '\n' < "$work/$way.json" && echo; } >> "$out/records.jsonl"
done
"$python" "$here/benchmarks/narrator_latent.py" table --out "$work" | tee "$out/table.md"
echo "done after $SECONDS s"
