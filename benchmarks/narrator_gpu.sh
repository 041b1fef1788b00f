#!/bin/bash
# The models `default` and `large` on one GPU, from their bases (about 25 minutes on one H200):
#
#     FABULA_DATA=DATA FABULA_BASES=BASES bash benchmarks/narrator_gpu.sh RUNS narrators
#     FABULA_DATA=DATA FABULA_BASES=BASES bash benchmarks/narrator_gpu.sh RUNS critics
#     FABULA_DATA=DATA FABULA_BASES=BASES bash benchmarks/narrator_gpu.sh RUNS preferences
#
# DATA holds train.csv, valid.csv and test.csv, the tags of the first two (training/stories.py: save_tags), cloze_valid.csv,
# union_roc.txt and readings.jsonl (benchmarks/reading.py unpack). BASES is where `fabula bases add` noted SmolLM2 and
# TinyLlama. A stage whose output lies in RUNS is not run again; RUNS/log says what each one printed. DEVICE=cpu NUMBER=2
# tries it out on a few stories. RUNS/default and RUNS/large are then narrators, RUNS/default-critic and RUNS/large-critic
# their critics. `preferences` begins from RUNS/large and RUNS/large-critic; DATA then has prompts1.csv, rated.jsonl (samples
# with readers' ratings), held.jsonl and readings-frames.jsonl (benchmarks/reading.py frames) and choose.csv. It leaves
# RUNS/critic-a, a better critic of large, RUNS/preferred, which learnt from preferences, and RUNS/critic-b, its critic.
set -u
data=$FABULA_DATA runs=$1 device=${DEVICE:-cuda}
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH=$here/src:$here/paper/src:${PYTHONPATH:-} PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=true
large=$(python3 -c "from fabula.models.decoders.bases import TINYLLAMA, need_base; print(need_base(TINYLLAMA))")
mkdir -p "$runs"
stage() { # NAME OUTPUT COMMAND...
    local name=$1 output=$2 begin=$SECONDS; shift 2
    [ -e "$output" ] && return
    if timeout 900 "$@" > "$runs/$name.out" 2>&1; then echo "$name, $((SECONDS - begin)) s: $(tail -3 "$runs/$name.out" | tr '\n' ' ')"
    else echo "$name FAILED: $(tail -3 "$runs/$name.out" | tr '\n' ' ')"; fi | tee -a "$runs/log"
}
train() { # NAME RECIPE [SETTINGS] [SED]: a recipe with settings added or changed
    { sed "${4:-}" "$here/recipes/$2.toml"; printf '%b' "${3:-}"; } > "$runs/$1.toml"
    stage "$1" "$runs/$1/config.json" python3 -m fabula train "$runs/$1.toml" --data "$data" --out "$runs/$1" --device "$device" --quiet
}
gpu() { # NAME OUTPUT ACTION OPTIONS...
    local name=$1 output=$2; shift 2
    stage "$name" "$output" python3 "$here/benchmarks/narrator_gpu.py" "$@" --device "$device"
}
narrator() { # NAME EPOCHS [SETTINGS]: trained, then the mean of the last two epochs, turned down
    train "$1-last" "$1" "${3:-}" &
    until [ "$(cat "$runs/$1-last/log.jsonl" 2>/dev/null | wc -l)" -ge $(($2 - 1)) ]; do sleep 2; kill -0 $! 2>/dev/null || break; done
    cp -r "$runs/$1-last/resume" "$runs/$1-before"
    wait $!
    gpu "$1" "$runs/$1/config.json" mean --narrator "$runs/$1-last" --before "$runs/$1-before" --stories "$data/valid.csv" --out "$runs/$1"
}
fills() { # NAME NARRATOR STORIES SKIP NUMBER SAMPLES TEMPERATURE
    gpu "fills-$1" "$runs/fills-$1.jsonl" fills --narrator "$runs/$2" --stories "$data/$3.csv" --skip "$4" --number "${NUMBER:-$5}" \
        --samples "$6" --temperature "$7" --out "$runs/fills-$1.jsonl"
}

case $2 in
narrators)
    narrator large 3 "base = \"$large\"\n" &
    narrator default 4 &
    wait
    for name in default large; do
        gpu "$name-test" "$runs/none" nats --narrator "$runs/$name" --stories "$data/test.csv"
        fills "$name-valid" "$name" valid 100 60 16 0.7
        fills "$name-train" "$name" train 60000 400 8 0.75
    done
    gpu negatives "$data/negatives.jsonl" negatives --fills "$runs"/fills-*-train.jsonl --samples 3 --out "$data/negatives.jsonl"
    ;;
critics)
    # Readings of large's samples (benchmarks/records) are among DATA's; the second critic is taught by the first one's values.
    train large-critic critic "" "s|^narrator.*|narrator = \"$runs/large\"|" &
    fills large-more large train 62000 1500 8 0.75 &
    fills default-more default train 64000 2500 8 0.75 &
    wait
    for name in large-more default-more large-valid; do
        gpu "judge-$name" "$runs/judged-$name.jsonl" judge --narrator "$runs/large" --critic "$runs/large-critic" \
            --fills "$runs/fills-$name.jsonl" --out "$runs/judged-$name.jsonl"
    done
    gpu values "$data/readings-values.jsonl" values --fills "$runs"/judged-{large,default}-more.jsonl --out "$data/readings-values.jsonl"
    train default-critic critic "" "s|^narrator.*|narrator = \"$runs/default\"|; s|^rank.*|rank = 8|; s|^readings.*|readings = 256|"
    gpu judge-default-valid "$runs/judged-default-valid.jsonl" judge --narrator "$runs/default" --critic "$runs/default-critic" \
        --fills "$runs/fills-default-valid.jsonl" --out "$runs/judged-default-valid.jsonl"
    for name in default large; do
        gpu "ratings-$name" "$runs/none" ratings --narrator "$runs/$name" --critic "$runs/$name-critic" --stories "$data/union_roc.txt"
    done
    ;;
preferences)
    rank_of() { python3 -c "import json; print(json.load(open('$runs/$1/config.json'))['rank'])"; }
    critic() { # NAME NARRATOR START
        train "$1" critic "start = \"$runs/$3\"\n" "s|^narrator.*|narrator = \"$runs/$2\"|; s|^rank.*|rank = $(rank_of "$3")|; s|^share.*|share = 0.4|
            s|^batch.*|batch = 16|; s|^readings.*|readings = ${READINGS:-192}|; s|^learning_rate.*|learning_rate = 3e-4|"
    }
    judge() { # NAME NARRATOR CRITIC FILLS
        gpu "judge-$1" "$runs/judged-$1.jsonl" judge --narrator "$runs/$2" --critic "$runs/$3" --fills "$4" --out "$runs/judged-$1.jsonl"
    }
    critic critic-a large large-critic &
    fills prompts large prompts1 0 1200 12 0.8
    wait $!
    judge prompts large critic-a "$runs/fills-prompts.jsonl"
    mkdir -p "$runs/data" && ln -sf "$data"/{train,valid}* "$runs/data/"
    gpu pairs "$runs/data/pairs.jsonl" pairs --fills "$runs/judged-prompts.jsonl" "$data/rated.jsonl" --stories "$data/train.csv" \
        --each 2 --margin "${MARGIN:-1.0}" --out "$runs/data/pairs.jsonl"
    { fills choose-large large choose 0 100 16 0.7; judge choose-large large critic-a "$runs/fills-choose-large.jsonl"
      judge held large critic-a "$data/held.jsonl"; } &
    sed "s|^start.*|start = \"$runs/large\"|; s|^rank.*|rank = $(rank_of large)|" "$here/recipes/preference.toml" > "$runs/preferred.toml"
    stage preferred "$runs/preferred/config.json" python3 -m fabula train "$runs/preferred.toml" --data "$runs/data" --out "$runs/preferred" \
        --device "$device" --quiet
    wait
    critic critic-b preferred critic-a &
    fills choose-preferred preferred choose 0 100 16 0.7
    judge choose-preferred large critic-a "$runs/fills-choose-preferred.jsonl"
    gpu nats "$runs/none" nats --narrator "$runs/preferred" --stories "$data/valid.csv"
    wait
    judge own preferred critic-b "$runs/fills-choose-preferred.jsonl"
    judge held-preferred preferred critic-b "$data/held.jsonl"
    gpu ratings "$runs/none" ratings --narrator "$runs/preferred" --critic "$runs/critic-b" --stories "$data/union_roc.txt"
    ;;
esac
