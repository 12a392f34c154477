#!/bin/sh
# The installed package works on its own: installs this build into a temporary prefix, compiles each public header alone,
# builds examples/hello against the prefix and runs it on a tiny model.
#
# Usage: install_test.sh SOURCE_FOLDER BUILD_FOLDER CXX CC
set -eu
source=$1 build=$2 cxx=$3 cc=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }

headers=0
for header in "$work"/prefix/include/millrace/*.h; do
  name=$(basename "$header")
  # Twice: the include guard must hide the second one.
  printf '#include <millrace/%s>\n#include <millrace/%s>\n' "$name" "$name" >"$work/alone.cc"
  "$cxx" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I "$work/prefix/include" "$work/alone.cc" ||
    { echo "millrace/$name does not compile alone"; exit 1; }
  headers=$((headers + 1))
done
echo "$headers public headers compile alone"
[ "$headers" -ge 7 ]

cmake -S "$source/examples/hello" -B "$work/hello" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_BUILD_TYPE=Release >"$work/configure.log" 2>&1 || { cat "$work/configure.log"; exit 1; }
grep -q "millrace_DIR:PATH=$work/prefix" "$work/hello/CMakeCache.txt" || { echo "found another millrace"; exit 1; }
cmake --build "$work/hello" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }

output=$("$work/hello/hello" "$source/tests/golden/llama" "hello")
echo "$output"
case $output in
  *"[length, 32 tokens]" | *"[stop, "*" tokens]") ;;
  *) echo "the example did not end as it should"; exit 1 ;;
esac

status=0
"$work/hello/hello" "$work/no-such-model" 2>"$work/error" || status=$?
cat "$work/error"
[ "$status" -ne 0 ] && grep -q "no-such-model" "$work/error"

# The C interface, if this build has it: pkg-config finds it in the prefix.
library=$(find "$work/prefix" -name libmillrace.so)
[ -n "$library" ] || exit 0
export PKG_CONFIG_PATH="$(dirname "$library")/pkgconfig"
"$cc" -std=c11 -Wall -Wextra -Werror -pedantic "$source/examples/c/generate.c" -o "$work/generate" \
  $(pkg-config --cflags --libs millrace)
output=$(LD_LIBRARY_PATH="$(dirname "$library")" "$work/generate" "$source/tests/golden/llama" "hello" max_tokens=32)
echo "$output"
case $output in
  *"[32 tokens]") ;;
  *) echo "the example in C did not end as it should"; exit 1 ;;
esac
