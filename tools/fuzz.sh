#!/usr/bin/env bash
# Runs every fuzz target of tests/fuzz with libFuzzer, AddressSanitizer and UBSan.
#
#   tools/fuzz.sh                 all of them
#   tools/fuzz.sh uri_fuzz ...    those named
#
# FUZZ_SECONDS=60   how long each runs
# CXX=clang++-18    the clang to use; default: the newest one installed, else one is installed
#
# What they found worth keeping stays in build/fuzz/corpus, for the next run to begin with. An input
# that fails is left in build/fuzz/found: give it to the target as its argument to see it fail again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

versions=(19 18 17 16)
seconds=${FUZZ_SECONDS:-60}

die() {
  printf '%s\n' "$@" >&2
  exit 1
}

installed_clang() {
  local version
  for version in "${versions[@]}"; do
    command -v "clang++-$version" && return
  done
  return 1
}

# The newest that this system's packages have, with the runtime of its sanitizers.
install_clang() {
  local version packages prefix=()
  for version in "${versions[@]}"; do
    packages=("clang-$version" "libclang-rt-$version-dev")
    apt-cache show "${packages[@]}" >/dev/null 2>&1 || continue
    [ "$(id -u)" -eq 0 ] || prefix=(sudo)
    echo "[fuzz] installing ${packages[*]}"
    "${prefix[@]}" apt-get install -y --no-install-recommends "${packages[@]}" \
      >build/fuzz/install.log 2>&1 || die "fuzz: could not install ${packages[*]}:" "$(tail -n 5 build/fuzz/install.log)"
    return
  done
  die "fuzz: no clang 16 or newer here or in this system's packages; set CXX to one"
}

mkdir -p build/fuzz
if [ -z "${CXX:-}" ]; then
  installed_clang >/dev/null || install_clang
  CXX=$(installed_clang)
fi
export CXX
cmake --preset fuzz >build/fuzz/configure.log 2>&1 || die "$(tail -n 20 build/fuzz/configure.log)"
mapfile -t targets < <(cd tests/fuzz && ls -- *_fuzz.cc | sed 's/\.cc$//')
[ $# -eq 0 ] || targets=("$@")
cmake --build --preset fuzz -j "$(tools/build_jobs.sh)" --target "${targets[@]}"

mkdir -p build/fuzz/found
failed=()
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target log=build/fuzz/$target.log options=()
  mkdir -p "$corpus"
  [ ! -e "tests/fuzz/$target.dict" ] || options+=("-dict=tests/fuzz/$target.dict")
  if "build/fuzz/bin/$target" "${options[@]}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=4096 -print_final_stats=1 -artifact_prefix="build/fuzz/found/$target-" "$corpus" >"$log" 2>&1; then
    printf '[fuzz] %-20s passed: %s runs\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  else
    printf '[fuzz] %-20s FAILED, see %s\n' "$target" "$log"
    tail -n 30 "$log"
    failed+=("$target")
  fi
done
[ ${#failed[@]} -eq 0 ] || die "fuzz: failed: ${failed[*]}"
