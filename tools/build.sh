# shellcheck shell=sh
# What ./run, ./test and .ci/run share, in POSIX sh. Sourced with MILLRACE_ROOT set to the checkout.
#
#   MILLRACE_SKIP_PACKAGES=1   do not look for missing packages, Debian's or npm's, nor install them
#   MILLRACE_JOBS=N            compile N files at once (default: the number of processors)
#
# Everything here speaks on stderr: stdout belongs to the program that is run.

say() { printf 'millrace: %s\n' "$*" >&2; }

die() {
  say "$*"
  exit 1
}

jobs_count() { echo "${MILLRACE_JOBS:-$(nproc 2>/dev/null || echo 2)}"; }

# install_packages KIND...: the packages of these kinds in tools/debian-packages.txt, those that are not there yet.
install_packages() {
  [ "${MILLRACE_SKIP_PACKAGES:-}" = 1 ] && return 0
  command -v dpkg-query >/dev/null 2>&1 || return 0 # another system: the build names what it lacks
  wanted=
  for kind in "$@"; do
    while read -r line_kind package _; do
      if [ "$line_kind" = "$kind" ]; then wanted="$wanted $package"; fi
    done <"$MILLRACE_ROOT/tools/debian-packages.txt"
  done
  # shellcheck disable=SC2086 # a list of words
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
      die "these Debian packages are missing, and only root can install them: run  apt-get install$missing  as root"
    as_root=sudo
    [ -t 0 ] || as_root="sudo -n" # nobody is there to type a password
  fi
  say "installing$missing"
  log=$(mktemp) || exit 1
  # shellcheck disable=SC2086
  if ! { $as_root apt-get update &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } \
    </dev/null >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    die "the packages could not be installed (output above); by hand:  ${as_root:+sudo }apt-get install$missing"
  fi
  rm -f "$log"
}

# install_npm FOLDER WITHOUT: what package-lock.json in FOLDER names, with node and npm from Debian where there are none.
# None of it must be there: WITHOUT says what the work goes on without. Bounded in time, and not tried again with every
# start where it failed.
install_npm() {
  local lock there left_out log
  [ "${MILLRACE_SKIP_PACKAGES:-}" = 1 ] && return 0
  lock=$MILLRACE_ROOT/$1/package-lock.json
  there=$MILLRACE_ROOT/$1/node_modules/.package-lock.json
  log=build/npm-$(basename "$1")
  left_out=$MILLRACE_ROOT/$log.failed
  if [ -f "$there" ] && [ -z "$(find "$lock" -newer "$there")" ]; then return 0; fi
  if [ -f "$left_out" ] && [ -n "$(find "$left_out" -mmin -60 -newer "$lock")" ]; then
    say "$2 ($log.log, and $log.failed until it is tried again)"
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

# install_page [browser]: what the page is built with, and the browser of its tests.
install_page() {
  [ "${MILLRACE_SKIP_PACKAGES:-}" = 1 ] && return 0
  if [ "${1:-}" = browser ] && ! [ -x /usr/bin/chromium ]; then
    (install_packages browser) || say "the page's tests in a browser will be skipped"
  fi
  install_npm web "the page is left out"
}

# install_clients: those that people use, for the tests.
install_clients() { install_npm tests/server/clients "the tests with other people's clients will be skipped"; }

# A compiler cache hit should not depend on where the checkout lies.
export CCACHE_BASEDIR="$MILLRACE_ROOT" CCACHE_NOHASHDIR=1

# configure PRESET [OPTION...]: only when there is nothing to build with yet, the presets changed, the checkout moved,
# or an option -DNAME=VALUE is not what the cache holds. Anything else the build notices by itself.
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
  touch "$cache" # so that a preset that changed nothing is not looked at again
}

# configure_release TESTS: ./run needs no tests (and so not their packages), but keeps them when ./test asked for them.
configure_release() {
  if [ "$1" = OFF ] && [ -f "$MILLRACE_ROOT/build/release/build.ninja" ]; then
    configure release
  else
    configure release "-DMILLRACE_TESTS=$1"
  fi
}

# build PRESET [TARGET...]: quiet when there is nothing to do; a progress line on a terminal; the output when it fails.
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
    die "the build failed (the end of its output is above; all of it is in $dir/build.log)"
  fi
}

build_release() { build release "$@"; }

# show_progress PRESET LOG: stdin goes into LOG, and as one changing line to a terminal.
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
