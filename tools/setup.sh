#!/usr/bin/env bash
# Makes this machine and this checkout ready to build: Debian packages and a Python environment.
#
#   tools/setup.sh          what building and the demo need
#   tools/setup.sh test     also the Python packages that tests and benches run beside ours
#   tools/setup.sh clients  the SageMaker SDKs of versions 2 and 3, each in an environment of its own,
#                           for tests/clients/test_sagemaker_sdk*.py
#
# TORCH_PYTHON=/path/python   use the torch installed there instead of installing one
# YARD_ANY_SYSTEM=1           go on on a system that nobody has tried
#
# It may be run again at any time: what is in place is left alone, within a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
log_folder=build/.setup
child=""

say() { printf '[setup %3d s] %s\n' "$SECONDS" "$*"; }

die() {
  printf '%s\n' "$@" >&2
  exit 1
}

# Without this an interrupted set-up would leave its download running.
trap '[ -z "$child" ] || kill "$child" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# run_logged WHAT COMMAND...: output goes to a log; a sign of life every ten seconds; the log's end
# on failure.
run_logged() {
  local what=$1 log next=$((SECONDS + 10))
  shift
  log=$log_folder/$(tr -cs 'a-z0-9\n' '-' <<<"${what,,}").log
  say "$what"
  "$@" >"$log" 2>&1 &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.2
    if [ "$SECONDS" -ge "$next" ]; then
      say "  ... $(tail -n 1 "$log" | tr -d '\r' | cut -c 1-90)"
      next=$((SECONDS + 10))
    fi
  done
  if ! wait "$child"; then
    child=""
    tail -n 30 "$log" >&2
    die "setup: failed: $what (the whole log: $log)"
  fi
  child=""
}

check_system() {
  local id="" version="" machine
  [ ! -r /etc/os-release ] || read -r id version < <(. /etc/os-release && echo "${ID:-} ${VERSION_ID:-}")
  machine=$(uname -m)
  case "$id $version $machine" in
    "debian 12 "* | "debian 13 "* | "ubuntu 24.04 "*) [[ $machine =~ ^(x86_64|aarch64)$ ]] && return ;;
  esac
  [ -z "${YARD_ANY_SYSTEM:-}" ] || return 0
  die "setup: trainyard is tried on Debian 12 and 13 and Ubuntu 24.04 (x86-64, arm64), this is '$id $version $machine'; to go on all the same: install what packages.apt lists, then run again with YARD_ANY_SYSTEM=1"
}

listed_packages() { sed 's/#.*//' packages.apt | tr -s ' \n' '\n' | sed '/^$/d'; }

missing_packages() {
  listed_packages | while read -r package; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done
}

# Prints the command that turns apt-get into one with the right to install; fails without one.
root_prefix() {
  if [ "$(id -u)" -eq 0 ]; then
    echo env
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v >&2; }; }; then
    echo sudo
  else
    return 1
  fi
}

install_packages() {
  local missing prefix apt
  if ! command -v dpkg-query >/dev/null; then
    say "no dpkg here: the packages of packages.apt are taken for installed"
    return
  fi
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -gt 0 ] || return 0
  prefix=$(root_prefix) || die "setup: missing system packages and no right to install them; have them installed with" \
    "  apt-get install --no-install-recommends ${missing[*]}"
  apt=("$prefix" DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
  run_logged "package lists" "${apt[@]}" update
  run_logged "system packages: ${#missing[@]} to install" \
    "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
}

# The torch that is not ours, or nothing. Our own .venv named outright is ours all the same.
foreign_python() {
  local python=${TORCH_PYTHON:-}
  [ -n "$python" ] || return 0
  [ "$(cd "$(dirname "$python")" && pwd -P)" != "$(pwd -P)/$venv/bin" ] || return 0
  echo "$python"
}

check_foreign_python() {
  [ -x "$1" ] || die "setup: TORCH_PYTHON=$1 is not a program; name the python of an environment with torch"
  "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' ||
    die "setup: no torch in TORCH_PYTHON=$1; name the python of an environment with torch, or leave TORCH_PYTHON out"
}

# make_venv FOREIGN: the environment, made anew when it was made for another torch. A foreign
# torch is seen through a path file, so that it stays untouched.
make_venv() {
  local foreign=$1 made_for=$venv/.yard-torch-python
  local base=${foreign:-python3}
  if [ -x $venv/bin/python ] && $venv/bin/python -c '' && [ "$(cat $made_for 2>/dev/null)" = "$foreign" ]; then
    return
  fi
  run_logged "Python environment in $venv" "$base" -m venv --clear $venv
  if [ -n "$foreign" ]; then
    "$foreign" -c 'import importlib.util as u, os; print(os.path.dirname(os.path.dirname(u.find_spec("torch").origin)))' \
      >"$($venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/yard-torch.pth"
  fi
  echo "$foreign" >$made_for
}

# So that the environment's Python imports the package of this build.
show_package() {
  local path_file
  path_file=$($venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/trainyard.pth
  [ -e "$path_file" ] || echo "$(pwd -P)/build/release/python" >"$path_file"
}

# pip_install WHAT ARGUMENTS...: once for each content of the requirement files.
pip_install() {
  local what=$1 stamp
  shift
  stamp=$venv/.yard-$(cat requirements*.txt - <<<"$*" | sha256sum | cut -c 1-16)
  [ ! -e "$stamp" ] || return 0
  run_logged "$what" $venv/bin/python -m pip install --disable-pip-version-check --progress-bar off "$@"
  touch "$stamp"
}

install_python_packages() {
  local with_tests=$1 foreign
  foreign=$(foreign_python)
  if [ -n "$foreign" ]; then
    check_foreign_python "$foreign"
    [ "$with_tests" = yes ] || return 0
    make_venv "$foreign"
    show_package
    pip_install "Python packages of the tests" -r requirements-test.txt
    return
  fi
  make_venv ""
  show_package
  pip_install "torch (large: 0.2 to 3 GiB)" -r requirements.txt
  # The build's list again as a constraint: no test package may bring another torch.
  [ "$with_tests" = no ] ||
    pip_install "Python packages of the tests" -c requirements.txt -r requirements-test.txt
}

# install_client VERSION PACKAGE: neither goes with the other, nor with the boto3 of the other tests.
install_client() {
  local folder=.venv-sagemaker$1 package=$2
  [ ! -e "$folder/.yard-$package" ] || return 0
  run_logged "environment of the SageMaker SDK $1" python3 -m venv --clear "$folder"
  run_logged "SageMaker SDK $1 ($package)" \
    "$folder/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$package"
  touch "$folder/.yard-$package"
}

install_clients() {
  install_client 2 sagemaker==2.257.7
  install_client 3 sagemaker-train==1.27.0
}

main() {
  local with_tests=no
  case "${1:-}" in
    "") ;;
    test) with_tests=yes ;;
    clients)
      mkdir -p "$log_folder"
      install_clients
      say "ready"
      return
      ;;
    *) die "usage: tools/setup.sh [test|clients]" ;;
  esac
  check_system
  mkdir -p "$log_folder"
  install_packages
  install_python_packages "$with_tests"
  say "ready"
}

main "$@"
