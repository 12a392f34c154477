# shellcheck shell=sh
# Functions shared by ./run, ./test and .ci/run, in POSIX sh. Sourced with MILLRACE_ROOT set to the checkout.
#
#   MILLRACE_SKIP_PACKAGES=1   do not check for or install missing Debian or npm packages
#   MILLRACE_JOBS=N            compile N files at once (default: the number of processors)
#
# All messages go to stderr: stdout belongs to the program that is run.

say() { printf 'millrace: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

jobs_count() { echo "${MILLRACE_JOBS:-$(nproc 2>/dev/null || echo 2)}"; }

# install_packages KIND...: installs the missing packages of these kinds in tools/debian-packages.txt.
install_packages() {
  [ "${MILLRACE_SKIP_PACKAGES:-}" = 1 ] && return 0
  command -v dpkg-query >/dev/null 2>&1 || return 0 # not Debian: CMake reports what is missing
  wanted=
  for kind in "$@"; do
    while read -r line_kind package _; do
      if [ "$line_kind" = "$kind" ]; then wanted="$wanted $package"; fi
    done <"$MILLRACE_ROOT/tools/debian-packages.txt"
  done
  # shellcheck disable=SC2086 # split into words
  present=$(dpkg-query -W -f='${db:Status-Status}:${Package}\n' $wanted 2>/dev/null)
  missing=
  for package in $wanted; do
    case "
$present
" in
      *"
installed:$package
"*) ;;
      *) missing="$missing $package" ;;
    esac
  done
  [ -n "$missing" ] || return 0

  as_root=
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 ||
      die "Debian packages are missing; as root, run:  apt-get install$missing"
    as_root=sudo
    [ -t 0 ] || as_root="sudo -n" # not interactive: never prompt for a password
  fi
  say "installing$missing"
  log=$(mktemp) || exit 1
  # shellcheck disable=SC2086
  if ! { $as_root apt-get update &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } \
    </dev/null >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "installing packages failed (output above); try:  ${as_root:+sudo }apt-get install$missing"
  fi
  rm -f "$log"
}

# install_npm FOLDER WITHOUT: installs the packages of FOLDER/package-lock.json, and node and npm from Debian if missing.
# All of it is optional: on failure prints WITHOUT, the consequence, and continues. Bounded in time; a failure is not
# retried within the hour.
install_npm() {
  local lock there left_out log
  [ "${MILLRACE_SKIP_PACKAGES:-}" = 1 ] && return 0
  lock=$MILLRACE_ROOT/$1/package-lock.json
  there=$MILLRACE_ROOT/$1/node_modules/.package-lock.json
  log=build/npm-$(basename "$1")
  left_out=$MILLRACE_ROOT/$log.failed
  if [ -f "$there" ] && [ -z "$(find "$lock" -newer "$there")" ]; then return 0; fi
  if [ -f "$left_out" ] && [ -n "$(find "$left_out" -mmin -60 -newer "$lock")" ]; then
    say "$2: installing its packages failed recently ($log.log); remove $log.failed to retry now"
    return 0
  fi
  if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then (install_packages page); fi
  mkdir -p "$MILLRACE_ROOT/build" || exit 1
  say "installing the packages of $1"
  if command -v npm >/dev/null 2>&1 && timeout -k 10 300 npm ci --prefix "$MILLRACE_ROOT/$1" --no-audit --no-fund \
    --fetch-retries 1 --fetch-timeout 60000 </dev/null >"$MILLRACE_ROOT/$log.log" 2>&1; then
    rm -f "$left_out"
    touch "$there"
  else
    touch "$left_out"
    say "$2: its packages could not be installed ($log.log)"
  fi
}

# install_page [browser]: the packages that build the web page, and the browser for its tests.
install_page() {
  [ "${MILLRACE_SKIP_PACKAGES:-}" = 1 ] && return 0
  if [ "${1:-}" = browser ] && ! [ -x /usr/bin/chromium ]; then
    (install_packages browser) || say "the browser tests of the web page will be skipped"
  fi
  install_npm web "building without the web page"
}

# install_clients: third-party API clients for the tests.
install_clients() { install_npm tests/server/clients "the tests with third-party clients will be skipped"; }

# configure PRESET [OPTION...]: runs cmake only if the build folder is new, the presets changed, the checkout moved, or an
# option -DNAME=VALUE differs from the cache. The build detects everything else.
configure() {
  preset=$1
  shift
  dir=$MILLRACE_ROOT/build/$preset
  cache=$dir/CMakeCache.txt
  fresh=
  stale=
  if [ -f "$dir/build.ninja" ] && [ -f "$cache" ]; then
    if ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$MILLRACE_ROOT" "$cache"; then
      fresh=--fresh
    elif [ -n "$(find "$MILLRACE_ROOT/CMakePresets.json" -newer "$cache")" ]; then
      stale=1
    fi
    for option in "$@"; do
      option=${option#-D}
      grep -qx "${option%%=*}:[A-Z]*=${option#*=}" "$cache" || stale=1
    done
    [ -n "$fresh$stale" ] || return 0
  fi
  mkdir -p "$dir" || exit 1
  if ! (cd "$MILLRACE_ROOT" && cmake $fresh --preset "$preset" "$@") >"$dir/configure.log" 2>&1; then
    cat "$dir/configure.log" >&2
    die "cmake could not configure build/$preset (output above)"
  fi
  touch "$cache" # newer than the presets, even if they changed nothing
}

# configure_release TESTS: ./run needs neither the tests and their packages nor the kernels of other processors, but keeps
# them if ./test configured them.
configure_release() {
  if [ "$1" = ON ]; then
    configure release -DMILLRACE_TESTS=ON -DMILLRACE_KERNELS=all
  elif [ -f "$MILLRACE_ROOT/build/release/build.ninja" ]; then
    configure release
  else
    configure release -DMILLRACE_TESTS=OFF -DMILLRACE_KERNELS=native
  fi
}

# build PRESET [TARGET...]: silent if nothing is to be built; a progress line on a terminal; the output on failure.
build() {
  preset=$1
  shift
  dir=$MILLRACE_ROOT/build/$preset
  [ $# -gt 0 ] || set -- all
  {
    cmake --build "$dir" --parallel "$(jobs_count)" --target "$@" 2>&1 </dev/null
    echo "$?" >"$dir/build.status"
  } | show_progress "$preset" "$dir/build.log"
  status=$(cat "$dir/build.status" 2>/dev/null || echo 1)
  if [ "$status" -ne 0 ]; then
    tail -n 100 "$dir/build.log" >&2
    die "the build failed (end of output above; full output in $dir/build.log)"
  fi
}

build_release() { build release "$@"; }

# show_progress PRESET LOG: copies stdin to LOG, and to a terminal as one changing line.
show_progress() {
  began=
  : >"$2"
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$2"
    case $line in
      "["[0-9]*"/"[0-9]*"]"*) ;;
      *) continue ;;
    esac
    case $line in
      *"Re-checking globbed directories"*) continue ;;
    esac
    if [ -t 2 ]; then
      printf '\r\033[Kmillrace: %.100s' "$line" >&2
    elif [ -z "$began" ]; then
      say "building build/$1"
    fi
    began=1
  done
  if [ -n "$began" ] && [ -t 2 ]; then printf '\r\033[K' >&2; fi
}
