#!/bin/bash
# What the narrator learns from its own tellings, on one GPU: preferences by the critic, by readers and against copying.
#
#     FABULA_DATA=DATA START=NARRATOR bash benchmarks/narrator_preferred.sh RUNS
#     FABULA_DATA=DATA START=RUNS/preferred HOLD=NARRATOR NUMBER=2000 ANCHOR=30 OTHER=harder bash benchmarks/narrator_preferred.sh RUNS-2
#     python benchmarks/critic_join.py mean RUNS-2/preferred RUNS-2/preferred-harder MEAN; python benchmarks/critic_join.py shrink MEAN NEW --share 0.85
#
# The second goes on from the first, held to the same narrator; the mean of its two outcomes, turned down, ships. START is a folder with its critic, as src/fabula/data/default is.
# DATA holds train.csv and valid.csv with their tags (training/stories.py: save_tags for vader, emotion and verb). About
# seven minutes; NUMBER=3 SAMPLES=4 VALID=1 TRAIN=4 DEVICE=cpu tries it out. RUNS/log says what each stage printed.
set -u
data=$FABULA_DATA runs=$1 number=${NUMBER:-4000} device=${DEVICE:-cuda} start=${START:-src/fabula/data/default}
hold=${HOLD:-$start}
cd "$(dirname "$0")/.." || exit 1
export PYTHONPATH=src:${PYTHONPATH:-} PYTHONUNBUFFERED=1 PYTHONHASHSEED=0
mkdir -p "$runs"
gpu() { timeout 500 python3 benchmarks/narrator_gpu.py "$@" --device "$device"; }
stage() { # NAME OUTCOME COMMAND...
    local name=$1 outcome=$2 begun=$SECONDS; shift 2
    [ -e "$outcome" ] && return
    if "$@" > "$runs/$name.out" 2>&1; then echo "$name, $((SECONDS - begun)) s: $(tail -4 "$runs/$name.out" | tr '\n' ' ')"
    else echo "$name FAILED: $(tail -3 "$runs/$name.out" | tr '\n' ' ')"; fi | tee -a "$runs/log"
}

# 1. Sixteen tellings of each of these training stories: inner lines missing, two of them, all but the first.
tell() { # NAME MISSING SKIP NUMBER
    stage "tell-$1" "$runs/tell-$1.jsonl" gpu fills --narrator $start --critic $start/critic --stories "$data/train.csv" \
        --missing "$2" --skip "$3" --number "$4" --samples "${SAMPLES:-16}" --temperature 0.8 --seed 11 --out "$runs/tell-$1.jsonl"
}
tell middle 1,2,3 0 "$number" & one=$!
tell two 2,3 "$number" $((number / 3)) & two=$!
tell onwards 1,2,3,4 $((number * 2)) $((number / 3)) & three=$!
wait $one $two $three

# 2. Pairs: as `fill` ranks, and with what copies less and what readers liked better.
for way in ranked less-copied; do
    mkdir -p "$runs/$way-data"
    for file in "$data"/train*.csv "$data"/valid*.csv "$data"/*.tags.json; do [ -e "$file" ] && ln -sf "$(realpath "$file")" "$runs/$way-data/"; done
    more=; [ $way = less-copied ] && more="--copying ${COPYING:-4} --readings"
    # shellcheck disable=SC2086
    stage "prefer-$way" "$runs/$way-data/preferences.jsonl" gpu prefer --fills "$runs"/tell-*.jsonl --data "$data" $more \
        --out "$runs/$way-data/preferences.jsonl" & pids="${pids:-} $!"
done
# shellcheck disable=SC2086
wait $pids

# 3. The trainings.
train() { # NAME WAY SED
    sed "s|^start.*|start = \"$start\"|; s|^anchor_to.*|anchor_to = \"$hold\"|; s/^anchor = .*/anchor = ${ANCHOR:-10}.0/; s/^batch.*/batch = ${TRAIN:-128}/
        s/^human_rows.*/human_rows = ${TRAIN:-128}/; $3" recipes/narrator-preferred.toml > "$runs/$1.toml"
    stage "$1" "$runs/$1/adapter.safetensors" timeout 400 python3 -m fabula train "$runs/$1.toml" --data "$runs/$2-data" --out "$runs/$1" \
        --device "$device" --quiet
    for file in config.json stories.json CARD.md critic; do [ -d "$runs/$1" ] && cp -r $start/$file "$runs/$1/"; done
}
names="preferred preferred-${OTHER:-ranked}"
train preferred less-copied "" & one=$!
case ${OTHER:-ranked} in
    ranked) train preferred-ranked ranked "" ;;
    harder) train preferred-harder less-copied "s/^learning_rate.*/learning_rate = 2e-4/" ;;
esac & two=$!
wait $one $two

# 4. Figures on validation stories.
figures() { # NAME FOLDER TEMPERATURE
    stage "fills-$1-$3" "$runs/$1-$3.jsonl" gpu fills --narrator "$2" --critic $start/critic --stories "$data/valid.csv" --number "${VALID:-200}" \
        --samples "${SAMPLES:-16}" --temperature "$3" --out "$runs/$1-$3.jsonl"
}
pids=
for temperature in 0.6 0.8; do
    figures start $start $temperature & pids="$pids $!"
    for name in $names; do figures $name "$runs/$name" $temperature & pids="$pids $!"; done
done
# shellcheck disable=SC2086
wait $pids
stage copying "$runs/none" timeout 300 python3 benchmarks/narrator_copying.py --train "$data/train.csv" "$runs"/*-0.[68].jsonl
cat "$runs/copying.out"
grep -h nats "$runs"/perplexity-*.out 2> /dev/null
cat "$runs/log"
