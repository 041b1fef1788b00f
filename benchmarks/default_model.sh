#!/usr/bin/env bash
# Trains the candidates for the default model and the best LM, measures them on the validation split, packs them.
#   bash benchmarks/default_model.sh DATA JUDGE OUT [DEVICE] [DEADLINE] [EXTRA CHANGES, as :key=value...]
# JUDGE is an LM that none of them sees (lm-512). Nothing here reads the test split.
set -uo pipefail
data=$1 judge=$2 out=$3 device=${4:-cuda} deadline=${5:-480} extra=${6:-} work=${WORK:-/tmp/default}
export PYTHONPATH=src PYTHONUNBUFFERED=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
short=":model.language.dropout=0.35:train.epochs=20:train.patience=20" names=":train.swap_names=0.5"
here=$(dirname "$0"); mkdir -p "$out" "$work"; began=$(date +%s)
python3 "$here/train_systems.py" --data "$data" --out "$work" --device "$device" --deadline "$deadline" --samples 50 \
  --split valid --at-once 3 \
  "recipes/slds.toml:objective.whole_stories=0.5:objective.other_words=0.5$names$short$extra" \
  "recipes/slds-ahead.toml$extra" "recipes/lm-1024.toml$short$extra"
cp "$work/records.jsonl" "$out/"
runs=()
for name in slds slds-ahead lm-1024; do
  folder=$(ls -d "$work/$name" "$work/$name~"* 2>/dev/null | head -1)
  [ -f "$folder/config.json" ] && runs+=("$folder")
done
cat "$work"/*/log.jsonl > "$out/logs.jsonl"
echo "trained after $(( $(date +%s) - began )) s: ${runs[*]}"
for run in "${runs[@]}"; do python3 "$here/pack_runs.py" "$run" --out "$out" & done
for run in "${runs[@]}"; do
  case $(basename "$run") in lm*) continue ;; esac
  name=$(basename "$run")
  python3 "$here/lookahead.py" --model "$run" --judge "$judge" --data "$data" --split valid --stories "${STORIES:-500}" \
    --samples "${SAMPLES:-50}" --careful 0.7 0.85 1.0 --device "$device" --out "$out/lookahead-$name.json" \
    --texts "$out/texts-$name.txt" > "$work/$name.table" 2>&1 &
done
wait
tail -n 20 "$work"/*.table
tar cJf "$out/notes.tar.xz" -C "$out" $(cd "$out" && ls | grep -v tar) && (cd "$out" && ls | grep -v tar | xargs rm -f)
ls -l "$out"; echo "done after $(( $(date +%s) - began )) s"
