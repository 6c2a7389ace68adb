# The manual pages are clean mdoc and say what --help says.
. "$(dirname "$0")/common.bash"
for page in weft train eval generate probe info diff tokenize checkpoint simulate layout; do
    expect 0 "$weft" help --man "$page"
    name=weft-$page
    [ "$page" != weft ] || name=weft
    cp "$work/out" "$work/$name.1"
    built=${WEFT_BUILD_DIR:?}/man/$name.1
    [ ! -e "$built" ] || cmp "$built" "$work/$name.1" || fail "$built is stale"
    if command -v mandoc >/dev/null; then
        mandoc -Tlint -W warning "$work/$name.1" >"$work/lint" || fail "mandoc: $(cat "$work/lint")"
        [ "$page" = weft ] || mandoc -Tascii "$work/$name.1" | sed 's/.\x08//g' >"$work/text"
    fi
    if [ "$page" != weft ] && [ -e "$work/text" ]; then
        "$weft" help "$page" | grep -oE '^  --[a-z0-9-]+' | while read -r option; do
            grep -q -- "^ *$option" "$work/text" || echo "$option"
        done >"$work/lacking"
        [ ! -s "$work/lacking" ] || fail "the page of $page lacks $(cat "$work/lacking")"
    fi
done
command -v mandoc >/dev/null || echo "mandoc (Debian package mandoc) is missing: pages were made, not checked"
finish
