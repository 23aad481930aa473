#!/bin/bash
# The whole line on this machine: pictures, shards, tokenizer, a training job of two ranks of which
# one is killed on the way, and a report. `make demo` builds first and then runs this.
#
#   demo/run.sh [--smallest] [--no-chaos] [--keep]
#     --smallest   a few steps at tiny sizes: proves the line, learns nothing worth looking at
#     --no-chaos   no rank is killed
#     --keep       keep pictures, shards and tokenizer of the last run when they are there
#   IMAGES=DIR     your own JPEG or PNG pictures, each NAME.png with its caption in NAME.txt
#
# Everything is under demo/out; the outcome is demo/report.html. DEMO_OUT=DIR puts all of it there.
set -euo pipefail
if [[ -n ${IMAGES:-} ]]; then IMAGES=$(realpath -m "$IMAGES"); fi
if [[ -n ${DEMO_OUT:-} ]]; then DEMO_OUT=$(realpath -m "$DEMO_OUT"); fi
cd "$(dirname "$0")/.."

bin=${YARD_BIN_DIR:-build/release/bin}
out=${DEMO_OUT:-demo/out}
report=${DEMO_OUT:-demo}/report.html
recipe=demo/emoji.yaml
smallest=false chaos=true keep=false
for argument in "$@"; do
  case $argument in
    --smallest) smallest=true ;;
    --no-chaos) chaos=false ;;
    --keep) keep=true ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "demo: unknown argument '$argument' (known: --smallest --no-chaos --keep)" >&2; exit 2 ;;
  esac
done

# Bold only where somebody looks.
bold='' plain=''
if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi
step_count=5
step_index=0
begin=$SECONDS

fail() { echo "demo: $1" >&2; exit "${2:-2}"; }

# step TITLE COMMAND...: runs the command, says what and how long.
step() {
  local title=$1 since=$SECONDS
  shift
  step_index=$((step_index + 1))
  echo "${bold}[$step_index/$step_count] $title${plain}"
  "$@" || fail "'$title' failed with exit code $?; its output is above" 1
  echo "      done in $((SECONDS - since)) s"
}

# Every picture needs its caption: told before anything is made.
check_images() {
  local picture count=0
  [[ -d $IMAGES ]] || fail "IMAGES=$IMAGES: no such folder"
  while IFS= read -r -d '' picture; do
    [[ -s ${picture%.*}.txt ]] || fail "$picture has no caption: write it to ${picture%.*}.txt"
    count=$((count + 1))
  done < <(find -L "$IMAGES" -type f \( -iname '*.png' -o -iname '*.jpg' -o -iname '*.jpeg' \) -print0)
  [[ $count -gt 0 ]] || fail "IMAGES=$IMAGES: no .png, .jpg or .jpeg in it"
  echo "      $count captioned pictures in $IMAGES"
}

make_pictures() {
  if [[ -n ${IMAGES:-} ]]; then check_images; return; fi
  local limit=()
  if $smallest; then limit=(--limit 300); fi
  "$bin/yard" prep emoji "$pictures" --size 64 "${limit[@]}"
}

pack_shards() { "$bin/yard" shards pack "$pictures" "$out/shards" --size 2MiB; }
train_tokenizer() { "$bin/yard" prep tokenizer "$pictures" "$out/tokenizer"; }

train() {
  local arguments=(--name demo --ranks 2)
  if $chaos; then arguments+=(--kill-rank 1 --after-step "$kill_after_step"); fi
  "$bin/yard" run "${arguments[@]}" "$recipe" "${overrides[@]}"
}

for program in yard yard-train; do
  [[ -x $bin/$program ]] || fail "$bin/$program is not built: run 'make demo' or 'make build'" 3
done
mkdir -p "$out"
YARD_HOME=$(cd "$out" && pwd)/home
export YARD_HOME
pictures=${IMAGES:-$out/pictures}
overrides=("data.shards=$out/shards" "model.tokenizer=$out/tokenizer")
kill_after_step=1100
if $smallest; then
  kill_after_step=6
  overrides+=(stages.autoencoder-small.steps=2 stages.autoencoder-large.steps=2 stages.small.steps=3 stages.large.steps=2
    sampling.steps=3 evaluation.samples=16)
fi

rm -rf "$YARD_HOME" "$report"

if $keep && [[ -d $out/shards && -d $out/tokenizer ]]; then
  step_count=2
else
  rm -rf "$out/pictures" "$out/shards" "$out/tokenizer"
  step "captioned pictures" make_pictures
  step "WebDataset shards" pack_shards
  step "tokenizer of the captions" train_tokenizer
fi
step "training: a job of two ranks" train
step "report" "$bin/yard" report demo "$report"

job=$out/home/jobs/demo
echo
echo "${bold}done in $((SECONDS - begin)) s${plain}"
echo "  report     $report   (open it in a browser)"
echo "  pictures   $job/output/samples"
echo "  model      $job/output/pipeline   (diffusers' StableDiffusionPipeline.from_pretrained opens it)"
echo "  job        YARD_HOME=$out/home $bin/yard describe demo"
