#!/bin/sh
# From a clean checkout to a language model of your own: installs what is missing, builds weft in build/, makes a text
# of the quotations in Debian's fortunes package, trains a small model on its bytes for about two minutes, and lets it
# write. Run it again and it starts over with the training; nothing else is done twice.
#
# usage: sh tools/quickstart.sh [options of weft train]     e.g. sh tools/quickstart.sh --train-steps 6000
set -eu
cd "$(dirname "$0")/.."

fortunes=/usr/share/games/fortunes
work=build/quickstart
text=$work/fortunes.txt
run=$work/run

step() {
    printf '\n== %s\n' "$*"
}

step "Packages"
sh tools/install_packages.sh

step "Build"
cmake -S . -B build
cmake --build build -j "$(nproc)"

step "Text"
# All texts of the package but the pictures, in one order whatever the locale. The package's own indices (.dat) and
# links (.u8) have a dot in their names. Overstruck letters, as for a printer, are taken out.
mkdir -p "$work"
if [ ! -d "$fortunes" ]; then
    echo "quickstart.sh: $fortunes is missing; install the package fortunes, or train on any text with build/weft train" >&2
    exit 1
fi
backspace=$(printf '\b')
for file in "$fortunes"/*; do
    case ${file##*/} in
    *.* | ascii-art) ;;
    *) [ -f "$file" ] && printf '%s\n' "$file" ;;
    esac
done | LC_ALL=C sort | while IFS= read -r file; do
    LC_ALL=C sed -e :again -e "s/[^$backspace]$backspace//" -e 't again' -e "s/$backspace//g" "$file"
done >"$text"
echo "$text: $(wc -c <"$text") bytes of English"

step "Training (the loss is in nats a byte; a model that knows nothing has 5.55)"
rm -rf "$run"
build/weft train --model examples/configs/llama-1m-bytes.json --data "$text" --out "$run" \
    --train-steps 2500 --micro-batch-size 8 --seq-length 256 --lr 3e-3 --lr-warmup-steps 100 \
    --eval-interval 500 --eval-max-tokens 65536 --log-interval 50 "$@"

step "What it writes"
printf 'The '
build/weft generate --model "$run/latest" --prompt 'The ' --max-new-tokens 240 --temperature 0.7 --seed 5

step "Done"
echo "The model is in $run/latest, a folder that Hugging Face's transformers opens as it is. Try:"
echo "  build/weft generate --model $run/latest --prompt 'Never ' --temperature 0.7"
echo "  build/weft eval --model $run/latest --data README.md"
echo "  build/weft train --help"
