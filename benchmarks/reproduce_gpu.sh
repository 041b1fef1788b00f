#!/bin/bash
# The part of `fabula reproduce` that wants a GPU, on a bare machine, in three calls of at most ten minutes:
#
#     bash benchmarks/reproduce_gpu.sh alive     CARRY OUT SECONDS [words]   SLDS-1 with alpha 1, 10, 100, side by side
#     bash benchmarks/reproduce_gpu.sh latents   CARRY OUT SECONDS [words]   SLDS and SLDS-1 by three seeds, SLDS-10, -25, -50, LDS
#     bash benchmarks/reproduce_gpu.sh baselines CARRY OUT SECONDS [words]   LM and S2S by three seeds, the judge
#
# One rule trains all of them ($rule): equal updates, which is not equal convergence (LM: PPL 44.2 by it, 23.4 by 7,704
# updates of 128). What is reported of a training is measured in the call that trained it. OUT gets
# PART.tar.xz (records and texts: no weights, no sentence of the corpus; unpack it over REPORT at home and score there) and the
# headline systems' weights in 8 bits, in pieces (benchmarks/pack_runs.py), their hashes in PART.tar.xz.
# CARRY/roc.tar.xz is the prepared corpus; CARRY/cloze.npz (Story Cloze in its words) and CARRY/models.tar.xz (checkpoints, a
# folder each) may be missing. Words go to `fabula reproduce`. FABULA_COMMIT names the commit where there is no repository.
# JOBS processes train at once, MEASURE_JOBS measure, and share the card by MPS. A process that is killed takes the others with it, so trainings end themselves.
# To try it on a CPU: DEVICE=cpu MPS=0 ... with --small and a toy corpus (tests/smoke/test_reproduce_gpu.py).
set -u
part=$1 carry=$2 out=$3 seconds=$4
shift 4
began=$(date +%s)
export PYTHONPATH=src PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
work=${WORK:-/tmp/reproduce}/$part
mkdir -p "$work/models" "$work/report" "$out"
tar xJf "$carry/roc.tar.xz" -C "$work" &
[ -f "$carry/models.tar.xz" ] && tar xJf "$carry/models.tar.xz" -C "$work/models" &
wait
if [ "${MPS:-1}" = 1 ]; then
    export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
    mkdir -p "$work/mps"
    nvidia-cuda-mps-control -d
    if ! timeout 60 python3 -c 'import torch; torch.ones(1, device="cuda").item()'; then
        echo "no MPS here: going on without"
        echo quit | nvidia-cuda-mps-control
        unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    fi
fi
# One rule for every system: the same number of updates, the same rates, a cosine to nothing, the last epoch kept.
rule=(--set train.epochs="${EPOCHS:-10}" --set train.batch=512 --set train.learning_rate=0.002
    --set train.learning_rate_dynamics=0.001 --set train.schedule=cosine --set train.keep=last)
common=(--data "$work/roc" --device "${DEVICE:-cuda}" "${rule[@]}")
[ -f "$carry/cloze.npz" ] && common+=(--cloze "$carry/cloze.npz")
left() { echo $((seconds - ($(date +%s) - began))); }
share() { echo $(($(left) * $1 / 100)); }

if [ "$part" = alive ]; then
    # A story's bound is looked at with few samples: what is asked is whether q(S | X) lives and the dynamics obey.
    one() {
        name=$1
        shift
        python3 -m fabula reproduce "${common[@]}" --out "$work/report/$name" --bound-samples 8 --jobs 1 \
            --only train/slds-1,write/slds-1,likelihood/slds-1 --deadline $(($(left) - 20)) --train-until "$(share 75)" \
            "$@" > "$work/report/$name.log" 2>&1
    }
    for alpha in ${ALPHAS:-1 10 100}; do
        one "alpha$alpha-taught" --set slds-1:objective.labelled_per_step=64 --set slds-1:objective.alpha="$alpha" "$@" &
    done
    wait
    headline=()
else
    systems=slds,slds-1,slds-10,slds-25,slds-50,lds,slds-seed1,slds-1-seed1,slds-seed2,slds-1-seed2
    headline=(slds slds-1)
    if [ "$part" = baselines ]; then
        systems=lm,s2s,lm-seed1,s2s-seed1,lm-seed2,s2s-seed2,judge,plain,human
        headline=(lm s2s)
    fi
    models=()
    for folder in "$work"/models/*/; do
        [ -f "$folder/config.json" ] && models+=(--model "$(basename "$folder")=$folder")
    done
    # Ten likelihoods with 200 samples at once ended in an illegal memory access of cuDNN's GRU under MPS, which took all
    # processes along; five at once went through. Trainings may be ten.
    # A unit that runs at the deadline gets twenty seconds more, and packing takes some.
    trained=${systems%,plain,human}
    for step in "${JOBS:-10} train/${trained//,/,train/}" "${MEASURE_JOBS:-5} $systems"; do
        python3 -m fabula reproduce "${common[@]}" --out "$work/report" --jobs "${step% *}" --only "${step#* }" \
            --deadline $(($(left) - 70)) --train-until "$(share 60)" "${models[@]}" "$@" | tee -a "$work/report/$part.log"
    done
fi
[ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] && echo quit | nvidia-cuda-mps-control
for name in "${headline[@]}"; do
    [ -f "$work/report/runs/$name/config.json" ] \
        && python3 benchmarks/pack_runs.py "$work/report/runs/$name" --out "$out" --piece-mib 15 &
done
wait
(cd "$out" && find . -name '*.tar.[0-9]*' -exec sha256sum {} +) > "$work/report/packed.sha256"
tar cJf "$out/$part.tar.xz" -C "$work/report" --exclude runs --exclude toy .
echo "$(tar tJf "$out/$part.tar.xz" | grep -c 'records/.*json') records, $(stat -c %s "$out/$part.tar.xz") bytes, $(($(date +%s) - began)) s"
