#!/bin/bash
# The narrator and its critics on one GPU, from the base to the figures (about eight minutes).
#
#     FABULA_DATA=DATA bash benchmarks/narrator_gpu.sh RUNS
#
# DATA holds train.csv, valid.csv and test.csv with their tags (training/stories.py: save_tags), cloze_valid.csv,
# cloze_test.csv, union_roc.txt and, for the small model's tellings, a folder `roc` made by fabula prepare.
# What it learns from its own tellings: benchmarks/narrator_preferred.sh. A stage whose outcome lies in RUNS is not run again. RUNS/log says what each one printed.
set -u
data=$FABULA_DATA runs=$1
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src:${PYTHONPATH:-} PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=true
mkdir -p "$runs"
gpu() { timeout 500 python3 "$here/benchmarks/narrator_gpu.py" "$@"; }
train() { timeout 560 python3 -m fabula train "$@" --device cuda --quiet; }
say() { echo "[$SECONDS s] $*" >> "$runs/log"; }
stage() { # NAME OUTCOME COMMAND...
    local name=$1 outcome=$2; shift 2
    [ -e "$outcome" ] && return
    local begun=$SECONDS
    if "$@" > "$runs/$name.out" 2>&1; then say "$name, $((SECONDS - begun)) s: $(tail -4 "$runs/$name.out" | tr '\n' ' ')"
    else say "$name FAILED: $(tail -3 "$runs/$name.out" | tr '\n' ' ')"; fi
}
nll() { python3 -c "import re,sys; print(re.search(r'valid_nll ([0-9.]+)', open(sys.argv[1]).read()).group(1))" "$1" 2> /dev/null || echo 999; }
pearson() { python3 -c "import json,sys; print(json.load(open(sys.argv[1]))['figures']['pearson'])" "$1" 2> /dev/null || echo 0; }

# 1. Two narrators at different rates; the validation split chooses.
for rate in 5e-4 1e-3; do
    sed "s/^learning_rate.*/learning_rate = $rate/" "$here/recipes/narrator.toml" > "$runs/narrator-$rate.toml"
    stage narrator-$rate "$runs/narrator-$rate/adapter.safetensors" train "$runs/narrator-$rate.toml" --data "$data" --out "$runs/narrator-$rate" &
done
wait
best=5e-4; python3 -c "import sys; sys.exit(not float(sys.argv[2]) < float(sys.argv[1]))" "$(nll "$runs/narrator-5e-4.out")" "$(nll "$runs/narrator-1e-3.out")" && best=1e-3
[ -e "$runs/narrator" ] || cp -r "$runs/narrator-$best" "$runs/narrator"
say "narrator: $best"

# 2. What the critics learn from; a GRU that judges endings is trained beside it.
[ -d "$data/roc" ] && stage lm-1024 "$runs/lm-1024/config.json" train "$here/recipes/lm-1024.toml" --data "$data/roc" --out "$runs/lm-1024" &
lm=$!
[ -d "$data/roc" ] && stage small "$runs/small.jsonl" timeout 200 python3 "$here/benchmarks/middles.py" --model small --data "$data/roc" \
    --split train --number 6000 --samples 1 --plain --temperature 1 --memory 16 --device cuda --out "$runs/small.jsonl" &
small=$!
stage negatives "$data/negatives-narrator.jsonl" gpu negatives --narrator "$runs/narrator" --data "$data" --number 40000 --out "$data/negatives-narrator.jsonl"
wait $small
if [ -e "$runs/small.jsonl" ] && [ ! -e "$data/negatives-small.jsonl" ]; then
    python3 - "$runs/small.jsonl" "$data" << 'PY' || say "small negatives FAILED"
import csv, json, sys
from pathlib import Path
data = Path(sys.argv[2])
rows = {r["storyid"]: (n, [r[f"sentence{i}"] for i in range(1, 6)]) for n, r in enumerate(csv.DictReader((data / "train.csv").open(encoding="utf-8", newline="")))}
with (data / "negatives-small.jsonl").open("w", encoding="utf-8") as out:
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        if told["id"] in rows and "<unk>" not in " ".join(told["lines"]):
            n, s = rows[told["id"]]
            out.write(json.dumps({"of": n, "first": 1, "kind": "small", "sentences": [s[0], *told["lines"], s[4]]}) + "\n")
PY
fi

# 3. Critics: all layers, two thirds of them, and one that judges the others' choices (other negatives, another seed).
sed 's/^rank.*/rank = 8\nlayers = 20/' "$here/recipes/critic.toml" > "$runs/critic-20.toml"
sed 's/^rank.*/rank = 8\nseed = 7\nwithout = "middle blanks ranked"/' "$here/recipes/critic.toml" > "$runs/critic-second.toml"
stage critic-30 "$runs/critic-30/config.json" train "$here/recipes/critic.toml" --data "$data" --out "$runs/critic-30" &
one=$!
stage critic-20 "$runs/critic-20/config.json" train "$runs/critic-20.toml" --data "$data" --out "$runs/critic-20" &
two=$!
stage critic-second "$runs/critic-second/config.json" train "$runs/critic-second.toml" --data "$data" --out "$runs/critic-second" &
wait $one $two $!
for critic in critic-30 critic-20 critic-second; do
    stage ratings-$critic "$runs/ratings-$critic.json" gpu ratings --critic "$runs/$critic" --stories "$data/union_roc.txt" --data "$data" --out "$runs/ratings-$critic.json"
done
chosen=critic-30
python3 -c "import sys; sys.exit(not float(sys.argv[2]) > float(sys.argv[1]) - 0.015)" "$(pearson "$runs/ratings-critic-30.json")" "$(pearson "$runs/ratings-critic-20.json")" && chosen=critic-20
say "critic: $chosen"

# 4. The shipped critic: two of them joined, taught what readers said, cut to rank 8.
if [ ! -e "$runs/critic/config.json" ]; then
    python3 "$here/benchmarks/critic_join.py" join "$runs/critic-30" "$runs/critic-second" "$runs/critic-joined" &&
        python3 "$here/benchmarks/readings.py" unpack "$data"
    sed "s|^start.*|start = \"$runs/critic-joined\"|" "$here/recipes/critic-readings.toml" > "$runs/critic-readings.toml"
    stage critic-readings "$runs/critic-readings/config.json" train "$runs/critic-readings.toml" --data "$data" --out "$runs/critic-readings"
    python3 "$here/benchmarks/critic_join.py" cut "$runs/critic-readings" "$runs/critic" --rank 8
    stage ratings-critic "$runs/ratings-critic.json" gpu ratings --critic "$runs/critic" --stories "$data/union_roc.txt" --data "$data" --out "$runs/ratings-critic.json"
fi

# 5. One more epoch, with tokens for emotion and verb (not shipped).
sed "s|^epochs.*|epochs = 1\nstart = \"$runs/narrator\"|; s|^learning_rate.*|learning_rate = 3e-4|" "$here/recipes/narrator-factors.toml" > "$runs/factors.toml"
stage factors "$runs/factors/adapter.safetensors" train "$runs/factors.toml" --data "$data" --out "$runs/factors"

wait $lm
say "all done"
