#!/bin/sh
# Builds the guests (the small programs that the tests record) into tests/guests/bin. What is newer than its sources is left alone.
# The comments at the top of each source say how it is built: see tests/guests/guest.h.
#
#   scripts/build-guests.sh [--jobs N] [NAME...]     all guests, or those whose source has one of the names
set -eu
cd "$(dirname "$0")/../tests/guests"
mkdir -p bin bin/chaos bin/hostile bin/java bin/kernels bin/libraries bin/servers

jobs=2
if [ "${1:-}" = --jobs ]; then
    jobs=$2
    shift 2
fi

usual="-std=gnu11 -g -O1 -Wall -Wextra -Werror -pthread -I."
usual_cpp="-std=gnu++17 -g -O1 -Wall -Wextra -Werror -pthread -I."
list=$(mktemp)
trap 'rm -f "$list"' EXIT

# add OUTPUT SOURCE COMMAND: a line of the work list, unless the output is newer than everything it is made from.
add() {
    if [ -e "bin/$1" ] && [ "bin/$1" -nt "$2" ] && [ "bin/$1" -nt guest.h ] && [ "bin/$1" -nt ../../scripts/build-guests.sh ]; then
        return
    fi
    printf '%s\n' "$3" >>"$list"
}

# The directives of a source: `directive flags FILE` prints what follows `// flags:`.
directive() {
    sed -n "s,^// $1: *,,p" "$2"
}

# Other processors' and other languages' compilers may be missing; their guests are then left out, and their tests fail saying so.
have() {
    command -v "$1" >/dev/null 2>&1 || {
        echo "build-guests: no $1, leaving out its guests (scripts/setup-tests.sh installs it)" >&2
        return 1
    }
}

wanted() {
    [ $# -eq 1 ] && return 0
    name=$1
    shift
    for w; do [ "$w" = "$name" ] && return 0; done
    return 1
}

for source in *.c tools/*.c; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .c)
    wanted "$name" "$@" || continue
    flags=$(directive flags "$source")
    libraries=$(directive libraries "$source")
    add "$name" "$source" "gcc $usual $flags $source -o bin/$name $libraries"
    directive variant "$source" | while read -r variant more; do
        add "$name-$variant" "$source" "gcc $usual $flags $more $source -o bin/$name-$variant $libraries"
    done
done

# What guests load while they run.
for source in libraries/*.c; do
    name=$(basename "$source" .c)
    wanted "$name" "$@" || continue
    add "libraries/$name.so" "$source" "gcc $usual -O2 -shared -fPIC $source -o bin/libraries/$name.so"
done

# Kernels are benchmarks as well: optimised, and with a header of their own.
for source in kernels/*.c; do
    name=$(basename "$source" .c)
    wanted "$name" "$@" || continue
    [ kernels/kernel.h -nt "bin/kernels/$name" ] && rm -f "bin/kernels/$name"
    add "kernels/$name" "$source" "gcc $usual -O2 $source -o bin/kernels/$name -lm"
done

# Programs with a known fault, which chaos is to find.
for source in chaos/*.c; do
    name=$(basename "$source" .c)
    wanted "$name" "$@" || continue
    [ chaos/fault.h -nt "bin/chaos/$name" ] && rm -f "bin/chaos/$name"
    add "chaos/$name" "$source" "gcc $usual $source -o bin/chaos/$name"
done

# Programs that attack their recorder.
for source in hostile/*.c; do
    name=$(basename "$source" .c)
    wanted "$name" "$@" || continue
    add "hostile/$name" "$source" "gcc $usual $source -o bin/hostile/$name"
done

for source in *.cpp; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .cpp)
    wanted "$name" "$@" || continue
    flags=$(directive flags "$source")
    add "$name" "$source" "g++ $usual_cpp $flags $source -o bin/$name"
    directive variant "$source" | while read -r variant more; do
        add "$name-$variant" "$source" "g++ $usual_cpp $flags $more $source -o bin/$name-$variant"
    done
done

# Programs built with sanitizers: every source by every compiler with every sanitizer that it has, as NAME-COMPILER-SANITIZER.
for source in sanitized/*; do
    file=$(basename "$source")
    name=${file%.*}
    wanted "$name" "$@" || continue
    case $file in
    *.cpp) gnu=g++ llvm=clang++ standard="-std=gnu++17" ;;
    *) gnu=gcc llvm=clang standard="-std=gnu11" ;;
    esac
    for pair in $gnu:address $gnu:thread $gnu:undefined $gnu:leak $llvm:address $llvm:thread $llvm:memory $llvm:undefined $llvm:leak; do
        compiler=${pair%%:*} sanitizer=${pair##*:}
        have "$compiler" || continue
        case $compiler in
        g*) family=gcc ;;
        *) family=clang ;;
        esac
        # The mistakes are made on purpose; a static runtime is what clang links by itself.
        add "$name-$family-$sanitizer" "$source" "$compiler $standard -g -O1 -w -pthread -I. -fsanitize=$sanitizer $source -o bin/$name-$family-$sanitizer"
    done
done

if have go; then
    for source in *.go servers/*.go; do
        [ -e "$source" ] || continue
        name=${source%.go}
        wanted "$name" "$@" || continue
        add "$name" "$source" "CGO_ENABLED=0 GO111MODULE=off GOFLAGS= go build -o bin/$name $source"
    done
fi

if have rustc; then
    for source in *.rs; do
        [ -e "$source" ] || continue
        name=$(basename "$source" .rs)
        wanted "$name" "$@" || continue
        add "$name" "$source" "rustc --edition 2021 -D warnings -C opt-level=1 -g -o bin/$name $source"
    done
fi

if have javac; then
    for source in *.java servers/*.java; do
        [ -e "$source" ] || continue
        name=$(basename "$source" .java)
        wanted "$name" "$@" || continue
        add "java/$name.class" "$source" "javac -Xlint:all -d bin/java $source"
    done
fi

count=$(wc -l <"$list")
[ "$count" -gt 0 ] || exit 0
echo "build-guests: $count to build"
xargs -P "$jobs" -d '\n' -n 1 sh -c 'eval "$0" || { echo "build-guests: failed: $0" >&2; exit 1; }' <"$list"
