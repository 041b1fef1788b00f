#!/bin/bash
# The part of `fabula reproduce` that wants a GPU, on a bare machine, in calls of at most ten minutes:
#
#     bash benchmarks/reproduce_gpu.sh latents   CARRY OUT SECONDS [words]   SLDS and SLDS-1 by three seeds, SLDS-10, -25, -50, LDS
#     bash benchmarks/reproduce_gpu.sh baselines CARRY OUT SECONDS [words]   LM and S2S by three seeds, the judge
#
# CARRY/roc.tar.xz is the prepared corpus; CARRY/cloze.npz (Story Cloze in its words) and CARRY/models.tar.xz (checkpoints, a
# folder each) may be missing. OUT gets PART.tar.xz: records and texts without weights or sentences of the corpus; unpack it
# over REPORT at home and score there. Words go to `fabula reproduce`. FABULA_COMMIT names the commit where there is no
# repository. Start MPS first (nvidia-cuda-mps-control -d) so that the processes share the card. DEVICE=cpu with --small and a toy corpus tries it out.
set -u
part=$1 carry=$2 out=$3 seconds=$4
shift 4
begin=$(date +%s)
export PYTHONPATH=src:paper/src:${PYTHONPATH:-} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
work=${WORK:-/tmp/reproduce}/$part
mkdir -p "$work/models" "$work/report" "$out"
tar xJf "$carry/roc.tar.xz" -C "$work"
[ -f "$carry/models.tar.xz" ] && tar xJf "$carry/models.tar.xz" -C "$work/models"
# One rule for every system: the same number of updates, the same rates, a cosine to nothing, the last epoch kept. Equal
# updates are not equal convergence (LM: PPL 44.2 by it, 23.4 by 7,704 updates of 128).
words=(--data "$work/roc" --device "${DEVICE:-cuda}" --out "$work/report" --set train.epochs="${EPOCHS:-10}"
    --set train.batch=512 --set train.learning_rate=0.002 --set train.learning_rate_dynamics=0.001
    --set train.schedule=cosine --set train.keep=last)
[ -f "$carry/cloze.npz" ] && words+=(--cloze "$carry/cloze.npz")
for folder in "$work"/models/*/; do
    [ -f "$folder/config.json" ] && words+=(--model "$(basename "$folder")=$folder")
done
left() { echo $((seconds - ($(date +%s) - begin))); }
systems=slds,slds-1,slds-10,slds-25,slds-50,lds,slds-seed1,slds-1-seed1,slds-seed2,slds-1-seed2
[ "$part" = baselines ] && systems=lm,s2s,lm-seed1,s2s-seed1,lm-seed2,s2s-seed2,judge,plain,human
trained=${systems%,plain,human}
# A call for each system, JOBS at a time, first all trainings, then the rest; timeout ends them, and the next call goes on.
# Five likelihoods at once: ten with 200 samples ended in an illegal memory access of cuDNN's GRU. Trainings may be ten.
trainings=${trained//,/ train/}
for step in "${JOBS:-10} train/$trainings" "${MEASURE_JOBS:-5} ${systems//,/ }"; do
    tr ' ' '\n' <<<"${step#* }" | timeout $(($(left) - 70)) xargs -P "${step%% *}" -I WHAT \
        python3 -m fabula reproduce "${words[@]}" "$@" --only WHAT | tee -a "$work/report/$part.log"
done
tar cJf "$out/$part.tar.xz" -C "$work/report" --exclude runs --exclude toy .
echo "$(tar tJf "$out/$part.tar.xz" | grep -c 'records/.*json') records, $(stat -c %s "$out/$part.tar.xz") bytes, $(($(date +%s) - begin)) s"
