#!/bin/bash
# From raw pictures to a trained text-to-image model on this machine: `yard serve`, pictures in its
# S3, and a pipeline of jobs (preparation, then training in steps on one and two hosts, of which one
# loses a rank on the way), and a report. `make demo` builds first and then runs this.
#
#   demo/run.sh [--smallest] [--no-chaos] [--keep] [--local]
#     --smallest   a few steps at tiny sizes: proves the line, learns nothing worth looking at
#     --stage-128  a third size, 128 px, as a step of its own (stage-128.yaml, step-128.yaml): some
#                  minutes more than the others together leave of six
#     --no-chaos   no rank is killed
#     --keep       go on with what the last run left: its pictures, platform and completed steps
#     --local      one job of two ranks by `yard run RECIPE.yaml`, without a platform. It is what
#                  happens by itself where no sandbox for jobs can be made (bubblewrap)
#   IMAGES=DIR     your own JPEG or PNG pictures, each NAME.png with its caption in NAME.txt
#
# Everything is under demo/out; the outcome is demo/report.html. DEMO_OUT=DIR puts all of it there.
set -euo pipefail
if [[ -n ${IMAGES:-} ]]; then IMAGES=$(realpath -m "$IMAGES"); fi
if [[ -n ${DEMO_OUT:-} ]]; then DEMO_OUT=$(realpath -m "$DEMO_OUT"); fi
cd "$(dirname "$0")/.."

bin=$(realpath -m "${YARD_BIN_DIR:-build/release/bin}")
out=$(realpath -m "${DEMO_OUT:-demo/out}")
report=${DEMO_OUT:-demo}/report.html
recipe=demo/emoji.yaml
smallest=false larger=false chaos=true keep=false local=false
for argument in "$@"; do
  case $argument in
    --smallest) smallest=true ;;
    --stage-128) larger=true ;;
    --no-chaos) chaos=false ;;
    --keep) keep=true ;;
    --local) local=true ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "demo: unknown argument '$argument' (known: --smallest --stage-128 --no-chaos --keep --local)" >&2; exit 2 ;;
  esac
done

# Bold only where somebody looks.
bold='' plain=''
if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi
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
  rm -rf "$out/pictures"
  "$bin/yard" prep emoji "$pictures" --size 64 "${limit[@]}"
}

# ---- the platform

# Whether a job can have a sandbox here, as root and without.
sandbox_works() {
  local how=(bwrap --unshare-pid --ro-bind / / true)
  if [[ $EUID -ne 0 ]]; then how=(bwrap --unshare-user "${how[@]:1}"); fi
  command -v bwrap >/dev/null && "${how[@]}" 2>/dev/null
}

# The hosts of a step of two are halves of this machine. A rank that is killed starts its job again
# on the same hosts.
write_platform_config() {
  local cores half
  cores=$(nproc)
  half=$((cores > 1 ? cores / 2 : 1))
  cat >"$YARD_HOME/yard.yaml" <<CONFIG
slices: {max: 4}
instance_types:
  - {type: ml.c5.xlarge, cores: $cores, shared: true, price_per_hour: 0.20}
  - {type: ml.c5.large, cores: $half, shared: true, price_per_hour: 0.10}
CONFIG
}

serve_pid=''
end_platform() {
  [[ -n $serve_pid ]] || return 0
  kill "$serve_pid" 2>/dev/null || true
  wait "$serve_pid" 2>/dev/null || true
  serve_pid=''
}
trap end_platform EXIT

start_platform() {
  mkdir -p -m 700 "$YARD_HOME"
  mkdir -p "$YARD_HOME"/s3/{raw,data,train}
  write_platform_config
  "$bin/yard" serve --listen 127.0.0.1:0 >"$out/serve.log" 2>&1 &
  serve_pid=$!
  eval "$("$bin/yard" env)"
  echo "      $AWS_ENDPOINT_URL, its state in $YARD_HOME"
}

# From here on the bucket tells a queue of what comes.
listen() { "$bin/yard" prep listen demo/prep.yaml; }

# The marker says that it was the last.
upload_pictures() {
  "$bin/yard" sync "$pictures" s3://raw/emoji | tail -n 1
  echo complete >"$out/_SUCCESS"
  "$bin/yard" cp "$out/_SUCCESS" s3://raw/emoji/_SUCCESS >/dev/null
}

# The recipe with one more stage, and the pipeline with one more step.
add_stage_128() {
  awk '/^optimizer:/ { while ((getline line < "demo/stage-128.yaml") > 0) print line } { print }' \
    demo/emoji.yaml >"$out/emoji.yaml"
  cat demo/pipeline.yaml demo/step-128.yaml >"$out/pipeline.yaml"
  cp demo/prep.yaml "$out/"
}

# While the first step's job takes in what has come, the rest is uploaded.
run_pipeline() {
  local arguments=(demo/pipeline.yaml) name mode=File
  if $larger; then
    add_stage_128
    arguments=("$out/pipeline.yaml" steps.denoiser.until=large)
  fi
  if [[ -r /dev/fuse && -w /dev/fuse ]]; then mode=FastFile; fi
  for name in "${train_steps[@]}"; do arguments+=("steps.$name.input_mode=$mode"); done
  if $smallest; then
    local tiny=' {stages.autoencoder-small.steps: 24, stages.autoencoder-small.warmup_steps: 2, stages.autoencoder-large.steps: 4, stages.small.steps: 3, stages.large.steps: 5, checkpoint.every_steps: 4, sampling.steps: 3, evaluation.samples: 16}'
    if $larger; then tiny="${tiny%\}}, stages.largest.steps: 2, stages.largest.warmup_steps: 1}"; fi
    for name in "${train_steps[@]}"; do arguments+=("steps.$name.set=$tiny"); done
  fi
  if $chaos; then arguments+=(--kill-step denoiser --kill-rank 1 --after-step "$kill_after_step"); fi
  local pipeline_pid uploaded=true
  "$bin/yard" run "${arguments[@]}" &
  pipeline_pid=$!
  upload_pictures || uploaded=false
  if ! $uploaded; then kill "$pipeline_pid"; fi
  wait "$pipeline_pid" && $uploaded
}

# The report, and the last step's newest sample grid as a picture.
write_report() {
  "$bin/yard" report "$1" "$report" >/dev/null
  local grids=("$2"/output/samples/*.png)
  cp "${grids[-1]}" "${report%.html}.png"
}

demo_on_platform() {
  step_count=5
  step "captioned pictures" make_pictures
  step "the platform" start_platform
  step "notifications of s3://raw" listen
  step "upload, and the pipeline: prepare, then train in three steps" run_pipeline
  result=$YARD_HOME/pipelines/emoji/steps/${train_steps[-1]}
  step "report" write_report emoji "$result"
  end_platform
  describe="aws, boto3: YARD_HOME=$YARD_HOME $bin/yard serve &, then 'yard env'"
}

# ---- one job of this machine

pack_shards() { rm -rf "$out/shards"; "$bin/yard" shards pack "$pictures" "$out/shards" --size 2MiB; }
train_tokenizer() { rm -rf "$out/tokenizer"; "$bin/yard" prep tokenizer "$pictures" "$out/tokenizer"; }

train() {
  local arguments=(--name demo --ranks 2)
  local overrides=("data.shards=$out/shards" "model.tokenizer=$out/tokenizer")
  if $smallest; then
    overrides+=(stages.autoencoder-small.steps=24 stages.autoencoder-large.steps=4 stages.small.steps=3
      stages.large.steps=5 checkpoint.every_steps=4 sampling.steps=3 evaluation.samples=16)
  fi
  if $chaos; then arguments+=(--kill-rank 1 --after-step "$kill_after_step"); fi
  "$bin/yard" run "${arguments[@]}" "$recipe" "${overrides[@]}"
}

demo_locally() {
  step_count=5
  step "captioned pictures" make_pictures
  step "WebDataset shards" pack_shards
  step "tokenizer of the captions" train_tokenizer
  step "training: a job of two ranks" train
  result=$YARD_HOME/jobs/demo
  step "report" write_report demo "$result"
  describe="YARD_HOME=$YARD_HOME $bin/yard describe demo"
}

for program in yard yard-train; do
  [[ -x $bin/$program ]] || fail "$bin/$program is not built: run 'make demo' or 'make build'" 3
done
mkdir -p "$out"
export YARD_HOME=$out/home
pictures=${IMAGES:-$out/pictures}
train_steps=(px32 px64 denoiser)
if $larger; then train_steps+=(px128); fi
kill_after_step=1060
if $smallest; then kill_after_step=34; fi
if ! $local && ! sandbox_works; then
  echo "demo: bubblewrap cannot make a sandbox here, so that no platform is used (--local)"
  local=true
fi
if $local && $larger; then fail "--stage-128 is a step of the pipeline, which --local has not"; fi
if ! $keep || $local; then rm -rf "$YARD_HOME"; fi
rm -f "$report"

if $local; then demo_locally; else demo_on_platform; fi

echo
echo "${bold}done in $((SECONDS - begin)) s${plain}"
echo "  report     $report   (open it in a browser)"
echo "  pictures   $result/output/samples, the last of them ${report%.html}.png"
echo "  model      $result/output/pipeline   (diffusers' StableDiffusionPipeline.from_pretrained opens it)"
echo "  jobs       $describe"
