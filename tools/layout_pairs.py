#!/usr/bin/env python3
"""Makes and checks a set of layouts in which every pair of values that go together occurs.

usage: layout_pairs.py            writes tests/support/layout_pairs.inc
       layout_pairs.py --check    reads it: every row is possible and no pair is missing; exit 1 otherwise

The full product is too long for every run of the tests; most faults of combinations need two values to meet. Rows are
chosen greedily: of all rows that are possible, the one that covers most pairs not seen yet.
"""
import itertools
import os
import re
import sys

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support", "layout_pairs.inc")

# name: items of its list (embedding, blocks, final norm + head), heads
MODELS = {"odd_llama": (7, 6), "odd_tied": (7, 6), "odd_gpt2_dropout": (7, 6), "odd_deep": (9, 4)}
SCHEDULES = ["naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"]
FACTORS = ["mesh", "model", "stage", "schedule", "sequence", "recompute"]
VALUES = {
    "mesh": [(d, p, t) for n in (4, 8) for d in (1, 2, 4, 8) for p in (1, 2, 4, 8) for t in (1, 2, 4, 8)
             if d * p * t == n],
    "model": list(MODELS),
    "stage": [0, 1, 2, 3],
    "schedule": SCHEDULES,
    "sequence": [False, True],
    "recompute": ["none", "selective", "full"],
}


def chunks_of(row):
    return 2 if row["schedule"] == "interleaved" else 1


def is_possible(row):
    """Of a whole row. A pipeline of one stage has no schedule: one stands for all. So has one rank no sequence axis."""
    _, pp, tp = row["mesh"]
    items, heads = MODELS[row["model"]]
    if pp == 1 and row["schedule"] != "1f1b":
        return False
    if tp == 1 and row["sequence"]:
        return False
    return pp * chunks_of(row) <= items and tp <= heads


def possible_rows():
    for values in itertools.product(*(VALUES[f] for f in FACTORS)):
        row = dict(zip(FACTORS, values))
        if is_possible(row):
            yield row


def pairs_of(row):
    for a, b in itertools.combinations(FACTORS, 2):
        yield (a, row[a], b, row[b])


def make():
    rows = list(possible_rows())
    covers = [frozenset(pairs_of(r)) for r in rows]
    missing = set().union(*covers)
    chosen = []
    while missing:
        best = max(range(len(rows)), key=lambda i: len(covers[i] & missing))
        chosen.append(rows[best])
        missing -= covers[best]
    return chosen


def text_of(row):
    dp, pp, tp = row["mesh"]
    return ('{&%s, {.dp = %d, .pp = %d, .tp = %d, .stage = %d, .schedule = "%s", .chunks = %d, '
            '.is_sequence_parallel = %s, .recompute = "%s"}},'
            % (row["model"], dp, pp, tp, row["stage"], row["schedule"], chunks_of(row),
               "true" if row["sequence"] else "false", row["recompute"]))


PATTERN = re.compile(r'\{&(\w+), \{\.dp = (\d+), \.pp = (\d+), \.tp = (\d+), \.stage = (\d), \.schedule = "([\w-]+)", '
                     r'\.chunks = (\d), \.is_sequence_parallel = (\w+), \.recompute = "(\w+)"\}\},')


def read():
    rows = []
    with open(FILE, encoding="ascii") as f:
        for number, line in enumerate(f, 1):
            if line.startswith("/*") or line.startswith(" *"):
                continue
            m = PATTERN.fullmatch(line.strip())
            if m is None:
                sys.exit("%s:%d: not a row" % (FILE, number))
            row = {"model": m[1], "mesh": (int(m[2]), int(m[3]), int(m[4])), "stage": int(m[5]), "schedule": m[6],
                   "sequence": m[8] == "true", "recompute": m[9]}
            if row["model"] not in MODELS or not is_possible(row) or int(m[7]) != chunks_of(row):
                sys.exit("%s:%d: not possible" % (FILE, number))
            rows.append(row)
    return rows


def check():
    wanted = set()
    for row in possible_rows():
        wanted.update(pairs_of(row))
    rows = read()
    for row in rows:
        wanted.difference_update(pairs_of(row))
    for pair in sorted(wanted, key=str):
        print("missing: %s %s with %s %s" % pair)
    print("%d layouts of %d possible ones; %d pairs missing" % (len(rows), sum(1 for _ in possible_rows()), len(wanted)))
    return 1 if wanted else 0


def main():
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    if sys.argv[1:]:
        sys.exit(__doc__)
    rows = make()
    with open(FILE, "w", encoding="ascii") as f:
        f.write("/* Made and checked by tools/layout_pairs.py: every pair of values that go together is in one row. */\n")
        f.write("".join(text_of(r) + "\n" for r in rows))
    sys.exit(check())


if __name__ == "__main__":
    main()
