#!/usr/bin/env python3
"""Check that every include points to a file's own layer or a lower one (docs/architecture.md).

usage: check_layers.py [--root DIR]     exit 0 when all is well, 1 with "file:line: why" for each wrong include
       check_layers.py --self-test      feed it small wrong trees, each of which it must report
"""

import argparse
import pathlib
import re
import sys
import tempfile

# Folder under src/ -> layer. The longest matching prefix wins.
LAYER_OF_FOLDER = {
    "base": 0,
    "tensor": 1,
    "formats": 2,
    "data": 2,
    "backend": 2,
    "comm": 3,
    "nn": 4,
    "optim": 5,
    "parallel": 6,
    "train": 7,
    "infer": 7,
    "plan": 8,
    "cli": 9,
}

# Headers for people who add a backend, a transport or a layer: include/weft/ext/NAME -> layer.
LAYER_OF_EXT = {
    "memory.h": 0,
    "view.h": 1,
    "backend.h": 2,
    "comm.h": 3,
    "hooks.h": 4,
    "layer.h": 4,
}

# Headers for users that speak of a layer's types: include/weft/NAME -> layer. The others are plain declarations that
# every layer may see.
LAYER_OF_PUBLIC = {
    "model.h": 4,
}

# (folder, what it must not include, why), beyond the order of layers.
FORBIDDEN = [
    ("nn", "comm", "layers do not know that they are parallel"),
    ("nn", "weft/ext/comm.h", "layers do not know that they are parallel"),
    ("comm", "nn", "a transport does not know layers"),
    ("optim", "nn", "optimizers work on flat spans, not on layers"),
    ("optim", "comm", "optimizers do not communicate"),
    ("optim", "weft/ext/comm.h", "optimizers do not communicate"),
    ("optim", "weft/ext/layer.h", "optimizers work on flat spans, not on layers"),
    ("backend", "comm", "operations do not communicate"),
    ("backend", "formats", "operations do not know files"),
    ("backend", "data", "operations do not know files"),
    ("formats", "data", "formats do not know the data pipeline"),
    ("parallel", "formats", "parallel methods do not know files"),
    ("parallel", "data", "parallel methods do not know files"),
    ("train", "infer", "training and inference do not know each other"),
    ("infer", "train", "training and inference do not know each other"),
]

# Headers of other libraries -> the folders or files under src/ that may use them.
EXTERNAL = {
    "dnnl": ("backend/cpu",),
    "omp.h": ("backend/cpu/threads.c",),
    "mpi.h": ("comm",),
    "nccl.h": ("comm",),
    "zlib.h": ("base/crc32.c",),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def within(path, prefix):
    return path == prefix or path.startswith(prefix + "/")


def layer_of(target):
    """Layer of an include path as written ("nn/layer.h", "weft/ext/backend.h"); None when it has none."""
    if target.startswith("weft/ext/"):
        return LAYER_OF_EXT.get(target[len("weft/ext/"):])
    if target == "weft.h":
        return 8
    if target.startswith("weft/"):
        return LAYER_OF_PUBLIC.get(target[len("weft/"):], 0)
    return LAYER_OF_FOLDER.get(target.split("/")[0]) if "/" in target else None


def check_public(path, target, is_system):
    """A header under include/ must work where only include/ is installed."""
    if is_system:
        return None
    if not target.startswith("weft/"):
        return f'a public header must not include the internal "{target}"'
    mine, other = layer_of(path), layer_of(target)
    if mine is None:
        return f"{path} has no layer: add it to LAYER_OF_EXT in tools/check_layers.py"
    if other is None or other > mine:
        return f'layer {mine} must not include "{target}" of layer {other}'
    return None


def check_external(path, target):
    for start, allowed in EXTERNAL.items():
        if target.startswith(start) and not any(within(path, a) for a in allowed):
            return f"<{target}> may be used only in {', '.join('src/' + a for a in allowed)}"
    return None


def check_internal(path, target, is_system):
    """path is relative to src/. Returns why the include is wrong, or None."""
    if is_system:
        return check_external(path, target)
    folder = path.split("/")[0]
    mine = LAYER_OF_FOLDER.get(folder)
    if mine is None:
        return f"the folder src/{folder} has no layer: add it to LAYER_OF_FOLDER in tools/check_layers.py"
    if folder == "cli":
        if target == "weft.h" or within(target, "cli"):
            return None
        return f'the program includes only "weft.h" and its own headers, not "{target}"'
    if target == "weft.h":
        return 'the umbrella "weft.h" is for programs; include the header that declares what is used'
    other = layer_of(target)
    if other is None:
        return f'"{target}" is in no layer'
    for who, what, why in FORBIDDEN:
        if folder == who and within(target, what):
            return f'"{target}": {why}'
    if other > mine:
        return f'layer {mine} (src/{folder}) must not include "{target}" of layer {other}'
    return None


def check_example(target, is_system):
    if is_system or target == "weft.h" or target.startswith("weft/"):
        return None
    return f'an example includes only public headers, not "{target}"'


def exists(root, target):
    return (root / "src" / target).is_file() or (root / "include" / target).is_file()


def check_file(root, file):
    relative = file.relative_to(root).as_posix()
    top, inner = relative.split("/", 1)
    found = []
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        is_system, target = match.group(1) == "<", match.group(2)
        if top == "include":
            why = check_public(inner, target, is_system)
        elif top == "src":
            why = check_internal(inner, target, is_system)
        else:
            why = check_example(target, is_system)
        if why is None and not is_system and not exists(root, target):
            why = f'"{target}" is neither under src/ nor under include/'
        if why is not None:
            found.append(f"{relative}:{number}: {why}")
    return found


def check_tree(root):
    found = []
    n_files = 0
    for top in ("include", "src", "examples"):
        for file in sorted((root / top).rglob("*.[ch]")):
            n_files += 1
            found += check_file(root, file)
    return n_files, found


# ---- self-test --------------------------------------------------------------------------------------------------

GOOD = {
    "include/weft.h": '#include "weft/status.h"\n',
    "include/weft/status.h": "",
    "include/weft/ext/backend.h": '#include "weft/status.h"\n',
    "include/weft/ext/comm.h": '#include "weft/ext/backend.h"\n',
    "include/weft/ext/layer.h": '#include "weft/ext/backend.h"\n',
    "include/weft/model.h": '#include "weft/ext/layer.h"\n',
    "src/base/error.h": '#include "weft/status.h"\n#include <stdio.h>\n',
    "src/tensor/shape.h": '#include "base/error.h"\n',
    "src/formats/json.c": '#include "tensor/shape.h"\n',
    "src/backend/cpu/gemm.c": '#include "weft/ext/backend.h"\n#include <dnnl.h>\n',
    "src/comm/self.h": '#include "weft/ext/comm.h"\n',
    "src/nn/linear.h": '#include "weft/ext/layer.h"\n',
    "src/optim/adamw.h": '#include "tensor/shape.h"\n',
    "src/train/step.h": '#include "nn/linear.h"\n#include "optim/adamw.h"\n',
    "src/infer/generate.h": '#include "nn/linear.h"\n',
    "src/cli/main.c": '#include "weft.h"\n#include "cli/options.h"\n',
    "src/cli/options.h": "",
    "examples/own.c": '#include "weft.h"\n#include "weft/ext/layer.h"\n',
}

# (file, its text, a word of the report)
WRONG = [
    ("src/base/log.c", '#include "tensor/shape.h"\n', "layer 1"),
    ("src/tensor/view.c", '\n  #  include "formats/json.c"\n', "layer 2"),
    ("src/nn/head.c", '#include "comm/self.h"\n', "do not know that they are parallel"),
    ("src/nn/head.c", '#include "weft/ext/comm.h"\n', "do not know that they are parallel"),
    ("src/comm/thread.c", '#include "nn/linear.h"\n', "does not know layers"),
    ("src/comm/thread.c", '#include "weft/ext/layer.h"\n', "layer 4"),
    ("src/optim/sgd.c", '#include "nn/linear.h"\n', "flat spans"),
    ("src/train/eval.c", '#include "infer/generate.h"\n', "do not know each other"),
    ("src/infer/chat.c", '#include "train/step.h"\n', "do not know each other"),
    ("src/cli/run.c", '#include "train/step.h"\n', 'only "weft.h"'),
    ("src/cli/run.c", '#include "base/error.h"\n', 'only "weft.h"'),
    ("src/train/eval.c", '#include "weft.h"\n', "umbrella"),
    ("src/nn/fast.c", "#include <dnnl.h>\n", "may be used only in"),
    ("src/train/spread.c", "#include <mpi.h>\n", "may be used only in"),
    ("src/extra/new.c", '#include "base/error.h"\n', "has no layer"),
    ("src/nn/norm.c", '#include "nn/missing.h"\n', "neither under src/"),
    ("src/nn/norm.c", '#include "linear.h"\n', "in no layer"),
    ("include/weft/model.h", '#include "base/error.h"\n', "internal"),
    ("include/weft/status.h", '#include "weft/ext/backend.h"\n', "layer 2"),
    ("src/formats/json.c", '#include "weft/model.h"\n', "layer 4"),
    ("include/weft/ext/backend.h", '#include "weft/ext/layer.h"\n', "layer 4"),
    ("include/weft/ext/new.h", '#include "weft/status.h"\n', "has no layer"),
    ("examples/own.c", '#include "nn/linear.h"\n', "public headers"),
]


def write_tree(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def self_test():
    n_wrong = 0
    for file, text, word in [(None, "", "")] + WRONG:
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            write_tree(root, GOOD)
            if file is not None:
                write_tree(root, {file: text})
            _, found = check_tree(root)
            expected = [] if file is None else [f for f in found if f.startswith(file + ":") and word in f]
            if (file is None and found) or (file is not None and (len(found) != 1 or not expected)):
                n_wrong += 1
                print(f"self-test: {file}: {text!r}: expected {word!r}, got {found}")
    print(f"check_layers: self-test of {len(WRONG) + 1} trees: {n_wrong} wrong")
    return 1 if n_wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent, type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    n_files, found = check_tree(options.root)
    for line in found:
        print(line)
    print(f"check_layers: {n_files} files, {len(found)} wrong includes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
