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
# their critics. `preferences` begins from these four; DATA then has prompts1.csv, prompts2.csv (training stories), pref.csv (validation
# stories), rated.jsonl (samples of those with readers' ratings), choose.csv and final.csv (other validation stories). It leaves RUNS/ready-large and RUNS/ready-default; MODELS=large
# makes the first alone.
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
    number=${NUMBER:-1500}
    judged() { # NAME: large's second critic values samples, whoever wrote them
        gpu "judge-$1" "$runs/judged-$1.jsonl" judge --narrator "$runs/large" --critic "$runs/large-critic2" --fills "$runs/fills-$1.jsonl" \
            --out "$runs/judged-$1.jsonl"
    }
    rank_of() { python3 -c "import json; print(json.load(open('$runs/$1/config.json'))['rank'])"; }
    prefer() { # NAME START ROUND MORE-FILLS...: pairs of samples, then a training
        local name=$1 start=$2 round=$3; shift 3
        mkdir -p "$runs/data-$name-$round" && ln -sf "$data"/*.csv "$data"/*.tags.json "$runs/data-$name-$round/"
        gpu "pairs-$name-$round" "$runs/data-$name-$round/pairs.jsonl" pairs --fills "$runs/judged-$name-$round.jsonl" "$@" --stories "$data/train.csv" \
            --each 2 --margin "${MARGIN:-1.0}" --out "$runs/data-$name-$round/pairs.jsonl"
        sed "s|^start.*|start = \"$runs/$start\"|; s|^rank.*|rank = $(rank_of "$start")|" "$here/recipes/preference.toml" > "$runs/$name-$round.toml"
        stage "$name-$round" "$runs/$name-$round/config.json" python3 -m fabula train "$runs/$name-$round.toml" --data "$runs/data-$name-$round" \
            --out "$runs/$name-$round" --device "$device" --quiet
    }
    critic() { # NAME NARRATOR START
        train "$1" critic "start = \"$runs/$3\"\n" "s|^narrator.*|narrator = \"$runs/$2\"|; s|^rank.*|rank = $(rank_of "$3")|; s|^share.*|share = 0.35|
            s|^readings.*|readings = 192|; s|^learning_rate.*|learning_rate = 3e-4|"
    }
    ready() { # NAME ROUND CRITIC: a model's folder, as it ships
        mkdir -p "$runs/ready-$1" && cp "$runs/$1-$2"/{config.json,adapter.safetensors,stories.json} "$runs/ready-$1/" && cp -r "$runs/$3" "$runs/ready-$1/critic"
        rm -rf "$runs/ready-$1/critic/resume"
        gpu "answers-$1" "$runs/answers-$1.jsonl" answers --narrator "$runs/ready-$1" --stories "$data/final.csv" --out "$runs/answers-$1.jsonl"
        for t in 0.45 0.6 0.7; do # of the words; the choice to end a sentence at 1
            gpu "answers-$1-$t" "$runs/answers-$1-$t.jsonl" answers --narrator "$runs/ready-$1" --stories "$data/choose.csv" --out "$runs/answers-$1-$t.jsonl" \
                --temperature $t --end-temperature 1
        done
        gpu "nats-$1" "$runs/none" nats --narrator "$runs/$1-$2" --stories "$data/valid.csv"
        gpu "held-$1" "$runs/judged-held-$1.jsonl" judge --narrator "$runs/$1-$2" --critic "$runs/$3" --fills "$data/held-$1.jsonl" --out "$runs/judged-held-$1.jsonl"
        gpu "ratings-$1" "$runs/none" ratings --narrator "$runs/$1-$2" --critic "$runs/$3" --stories "$data/union_roc.txt"
    }
    second_critic() { until [ -e "$runs/large-critic2/config.json" ]; do sleep 2; [ $SECONDS -gt 900 ] && return; done; }
    more() { [ ! -e "$runs/data-$1/pairs.jsonl" ]; } # pairs that lie there are not made again
    of_large() {
        critic large-critic2 large large-critic &
        if more large-1; then fills large-1 large prompts1 0 $number 12 0.8; second_critic; judged large-1; fi
        prefer large large 1 "$data/rated.jsonl"
        fills large-2 large-1 prompts2 0 $number 12 0.8
        second_critic
        judged large-2
        prefer large large-1 2
        critic large-critic3 large-2 large-critic2
        ready large 2 large-critic3
    }
    of_default() {
        if more default-1; then fills default-1 default prompts2 0 $((number * 4 / 3)) 12 0.8; second_critic; judged default-1; fi
        prefer default default 1
        fills default-2 default-1 prompts1 0 $((number * 4 / 3)) 12 0.8
        second_critic
        judged default-2
        prefer default default-1 2
        fills default-3 default-2 prompts2 2000 $((number * 4 / 3)) 12 0.8
        judged default-3
        gpu values "$data/readings-values.jsonl" values --fills "$runs"/judged-default-{2,3}.jsonl --out "$data/readings-values.jsonl"
        train default-critic2 critic "" "s|^narrator.*|narrator = \"$runs/default-2\"|; s|^rank.*|rank = 8|; s|^readings.*|readings = 256|"
        ready default 2 default-critic2
    }
    for name in ${MODELS:-large default}; do of_$name & done
    wait
    ;;
esac
