#!/bin/bash
# The narrator and its critic on one GPU, from the base (about eight minutes):
#
#     FABULA_DATA=DATA bash benchmarks/narrator_gpu.sh RUNS
#
# DATA holds train.csv and valid.csv with their tags (training/stories.py: save_tags), cloze_valid.csv, cloze_test.csv,
# union_roc.txt, and negatives-small.jsonl (`narrator_gpu.py small`, made where the whole package is installed).
# RUNS/default is then a narrator with its critic; benchmarks/narrator_preferred.sh goes on from there.
# A stage whose output lies in RUNS is not run again. RUNS/log says what each one printed. DEVICE=cpu NUMBER=8 tries it
# out on a few stories.
set -u
data=$FABULA_DATA runs=$1 device=${DEVICE:-cuda}
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src:$here/paper/src:${PYTHONPATH:-} PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=true
mkdir -p "$runs"
stage() { # NAME OUTPUT COMMAND...
    local name=$1 output=$2 begin=$SECONDS; shift 2
    [ -e "$output" ] && return
    if timeout 560 "$@" > "$runs/$name.out" 2>&1; then echo "$name, $((SECONDS - begin)) s: $(tail -4 "$runs/$name.out" | tr '\n' ' ')"
    else echo "$name FAILED: $(tail -3 "$runs/$name.out" | tr '\n' ' ')"; fi | tee -a "$runs/log"
}
train() { # NAME RECIPE SED: a recipe with changes
    sed "$3" "$here/recipes/$2.toml" > "$runs/$1.toml"
    stage "$1" "$runs/$1/config.json" python3 -m fabula train "$runs/$1.toml" --data "$data" --out "$runs/$1" --device "$device" --quiet
}

# 1. The narrator, and what the critics learn from.
train narrator narrator ""
stage negatives "$data/negatives-narrator.jsonl" python3 "$here/benchmarks/narrator_gpu.py" negatives --narrator "$runs/narrator" \
    --data "$data" --number "${NUMBER:-40000}" --device "$device" --out "$data/negatives-narrator.jsonl"

# 2. Two critics (other negatives, another seed) beside one more epoch of the narrator with tokens for emotion and verb.
train critic-first critic "" &
train critic-second critic 's/^rank.*/rank = 8\nseed = 7\nwithout = "middle blanks ranked"/' &
train factors narrator-factors "s|^epochs.*|epochs = 1\nstart = \"$runs/narrator\"|; s|^learning_rate.*|learning_rate = 3e-4|" &
wait

# 3. The critic: both joined, trained on the readings, cut to rank 8.
python3 "$here/benchmarks/adapters.py" join "$runs/critic-first" "$runs/critic-second" "$runs/critic-joined"
[ -e "$data/readings.jsonl" ] || python3 "$here/benchmarks/reading.py" unpack "$data"
train critic-readings critic-readings "s|^start.*|start = \"$runs/critic-joined\"|"
[ -e "$runs/critic" ] || python3 "$here/benchmarks/adapters.py" cut "$runs/critic-readings" "$runs/critic" --rank 8
stage ratings "$runs/ratings" python3 "$here/benchmarks/narrator_gpu.py" ratings --critic "$runs/critic" --stories "$data/union_roc.txt" --data "$data" --device "$device"

# 4. As they ship: one folder.
[ -e "$runs/default" ] || { cp -r "$runs/factors" "$runs/default" && cp -r "$runs/critic" "$runs/default/critic"; }
