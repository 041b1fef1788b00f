#!/bin/bash
# What the narrator learns from its own samples, on one GPU: preferences by the critic, by readers and against copying.
#
#     FABULA_DATA=DATA START=RUNS/default bash benchmarks/narrator_preferred.sh ONE
#     FABULA_DATA=DATA START=ONE/preferred HOLD=RUNS/default NUMBER=2000 ANCHOR=30 RATES="1e-4 2e-4" bash benchmarks/narrator_preferred.sh TWO
#     python benchmarks/adapters.py mean TWO/preferred TWO/preferred-2e-4 MEAN; python benchmarks/adapters.py shrink MEAN NEW --share 0.85
#
# The second round goes on from the first, held to the same narrator; the mean of its two outcomes, turned down, ships.
# START is a folder with its critic, as src/fabula/data/default is. DATA holds train.csv and valid.csv with their tags
# (training/stories.py: save_tags for vader, emotion and verb). About seven minutes; NUMBER=3 SAMPLES=4 VALID=1 TRAIN=4
# DEVICE=cpu tries it out. ONE/log says what each stage printed.
set -u
data=$FABULA_DATA runs=$1 number=${NUMBER:-4000} device=${DEVICE:-cuda} start=${START:-src/fabula/data/default}
cd "$(dirname "$0")/.." || exit 1
export PYTHONPATH=src:${PYTHONPATH:-} PYTHONUNBUFFERED=1
mkdir -p "$runs/data"
stage() { # NAME OUTPUT COMMAND...
    local name=$1 output=$2 begin=$SECONDS; shift 2
    [ -e "$output" ] && return
    if timeout 500 "$@" > "$runs/$name.out" 2>&1; then echo "$name, $((SECONDS - begin)) s: $(tail -4 "$runs/$name.out" | tr '\n' ' ')"
    else echo "$name FAILED: $(tail -3 "$runs/$name.out" | tr '\n' ' ')"; fi | tee -a "$runs/log"
}
fills() { # NAME NARRATOR STORIES MISSING SKIP NUMBER TEMPERATURE SEED
    stage "fills-$1" "$runs/fills-$1.jsonl" python3 benchmarks/narrator_gpu.py fills --narrator "$2" --critic "$start/critic" \
        --stories "$data/$3" --missing "$4" --skip "$5" --number "$6" --temperature "$7" --seed "$8" --samples "${SAMPLES:-16}" \
        --device "$device" --out "$runs/fills-$1.jsonl"
}

# 1. Sixteen samples of each of these training stories: inner lines missing, two of them, all but the first.
fills train-middle "$start" train.csv 1,2,3 0 "$number" 0.8 11 &
fills train-two "$start" train.csv 2,3 "$number" $((number / 3)) 0.8 11 &
fills train-onwards "$start" train.csv 1,2,3,4 $((number * 2)) $((number / 3)) 0.8 11 &
wait

# 2. Pairs: by the ranking of `fill`, less for what copies, and by the readings.
for file in "$data"/train*.csv "$data"/valid*.csv "$data"/*.tags.json; do [ -e "$file" ] && ln -sf "$(realpath "$file")" "$runs/data/"; done
stage prefer "$runs/data/preferences.jsonl" python3 benchmarks/narrator_gpu.py prefer --fills "$runs"/fills-train-*.jsonl --data "$data" \
    --copying "${COPYING:-4}" --readings --device "$device" --out "$runs/data/preferences.jsonl"

# 3. The trainings, one for each rate; the first is called `preferred`.
train() { # NAME RATE
    sed "s|^start.*|start = \"$start\"|; s|^anchor_to.*|anchor_to = \"${HOLD:-$start}\"|; s/^anchor = .*/anchor = ${ANCHOR:-10}.0/
        s/^batch.*/batch = ${TRAIN:-128}/; s/^human_rows.*/human_rows = ${TRAIN:-128}/; s/^learning_rate.*/learning_rate = $2/" \
        recipes/narrator-preferred.toml > "$runs/$1.toml"
    stage "$1" "$runs/$1/adapter.safetensors" python3 -m fabula train "$runs/$1.toml" --data "$runs/data" --out "$runs/$1" \
        --device "$device" --quiet
    for file in config.json stories.json CARD.md critic; do [ -e "$start/$file" ] && cp -r "$start/$file" "$runs/$1/"; done
}
names=
for rate in ${RATES:-1e-4}; do
    name=preferred; [ -n "$names" ] && name=preferred-$rate
    names="$names $name"
    train $name "$rate" &
done
wait

# 4. Figures on validation stories, beside those of START.
for temperature in 0.6 0.8; do
    fills start-$temperature "$start" valid.csv 1,2,3 0 "${VALID:-200}" $temperature 5 &
    for name in $names; do fills "$name-$temperature" "$runs/$name" valid.csv 1,2,3 0 "${VALID:-200}" $temperature 5 & done
done
wait
stage copying "$runs/none" python3 benchmarks/narrator_copying.py --train "$data/train.csv" "$runs"/fills-*-0.[68].jsonl
cat "$runs/copying.out" "$runs/log"
