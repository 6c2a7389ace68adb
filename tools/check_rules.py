#!/usr/bin/env python3
"""Check the lines of docs/conventions.md that a script can check.

usage: check_rules.py [--root DIR] [--archive libweft.a]
                                   exit 0 when all is well, 1 with "file:line: why" for each breach
       check_rules.py --self-test  feed it small wrong files, each of which it must report

With --archive the symbols of the library are checked too: their names, that no writable data is among them, and
that every function declared WEFT_API is there.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

MAX_C_LINES = 800
MAX_PARALLEL_LINES = 500
MAX_H_LINES = 300
MAX_FUNCTION_LINES = 120
MAX_PARAMETERS = 7
MAX_CODE_COLUMNS = 100
MAX_COMMENT_COLUMNS = 128

# Files that may be longer, each with its reason.
LONGER = {
    "include/weft/ext/backend.h": 500,  # one header holds every operation with its contract, by design
}

TOPS = ("include", "src", "tests", "examples", "bench")

# (pattern of a call, where it holds, files exempt, why). Where: a tuple of path prefixes.
LIBRARY = ("include/", "src/base", "src/tensor", "src/formats", "src/data", "src/backend", "src/comm", "src/nn",
           "src/optim", "src/parallel", "src/train", "src/infer", "src/plan")
CALLS = [
    (r"strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof|rand|srand|alloca", TOPS, (),
     "is banned: it cannot report failure or overruns its target"),
    (r"malloc|calloc|realloc|free|aligned_alloc|posix_memalign|memalign|strdup|strndup|asprintf|vasprintf",
     ("include/", "src/"), ("src/base/alloc.c",), "belongs in src/base/alloc.c; memory comes from the context"),
    (r"getenv|secure_getenv", ("include/", "src/"), ("src/base/env.c",), "belongs in src/base/env.c"),
    (r"setenv|putenv|unsetenv|exit|_exit|_Exit|quick_exit|atexit|signal|sigaction|system|popen", LIBRARY, (),
     "must not be called by a library"),
    (r"abort", LIBRARY, ("src/base/error.c",), "must not be called by a library"),
    (r"printf|vprintf|puts|putchar|perror", LIBRARY, (), "prints; a library logs with weft_log"),
    (r"f?printf\s*\(\s*(?:stderr|stdout)|fputs\s*\([^;]*(?:stderr|stdout)", LIBRARY, ("src/base/error.c",),
     "prints; a library logs with weft_log"),
]
# Not calls: (pattern, where, exempt, why)
WORDS = [
    (r"__attribute__|__builtin_\w+|__asm__|\basm\b|__extension__|__typeof__|\btypeof\b|__int128|__has_\w+|_mm\d*_\w+",
     ("include/", "src/"), ("src/base/compiler.h", "include/weft/status.h"),
     "is a compiler extension, which belong in src/base/compiler.h"),
    (r"\bimmintrin\.h|\barm_neon\.h", ("include/", "src/"), ("src/base/compiler.h",),
     "is a compiler extension, which belong in src/base/compiler.h"),
    (r"#\s*pragma\s+(?!omp\s+(?:declare\s+)?simd\b)\w.*", ("include/", "src/"), ("src/base/compiler.h",),
     "only `omp simd` pragmas are allowed"),
]


class Source:
    """A file with comments and literals blanked out, so that patterns meet only code."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        self.code = blank(text)
        self.code_lines = self.code.split("\n")


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def blank(text):
    def replace(match):
        token = match.group(0)
        if token[0] in "\"'" and is_include(text, match.start()):
            return token
        filler = re.sub(r"[^\n]", " ", token)
        return token[0] + filler[1:-1] + token[0] if token[0] in "\"'" else filler

    return TOKEN.sub(replace, text)


def is_include(text, at):
    start = text.rfind("\n", 0, at) + 1
    return re.match(r"\s*#\s*include", text[start:at]) is not None


def starts_with(path, prefixes):
    return any(path == p or path.startswith(p if p.endswith("/") else p + "/") for p in prefixes)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


# ---- checks of one file: each yields (line, why) ----


def check_text(source):
    for number, line in enumerate(source.lines, 1):
        if not line.isascii():
            yield number, "has a character that is not ASCII"
        if "\t" in line:
            yield number, "has a tab"
        if line != line.rstrip():
            yield number, "ends in blanks"
        code = source.code_lines[number - 1].rstrip()
        if len(code) > MAX_CODE_COLUMNS:
            yield number, f"is {len(code)} columns wide, at most {MAX_CODE_COLUMNS}"
        elif len(line) > MAX_COMMENT_COLUMNS:
            yield number, f"is {len(line)} columns wide, at most {MAX_COMMENT_COLUMNS} with its comment"
    if source.text and not source.text.endswith("\n"):
        yield len(source.lines), "the last line does not end"


def check_length(source):
    n = source.text.count("\n")
    limit = MAX_H_LINES if source.path.endswith(".h") else MAX_C_LINES
    if source.path.startswith("src/parallel/") and source.path.endswith(".c"):
        limit = MAX_PARALLEL_LINES
    limit = LONGER.get(source.path, limit)
    if n > limit:
        yield n, f"the file has {n} lines, at most {limit}"


def check_opening(source):
    if source.text and not source.text.lstrip().startswith("/*"):
        yield 1, "the file does not open with a comment that says what it is for"


def check_calls(source):
    for pattern, where, exempt, why in CALLS:
        if not starts_with(source.path, where) or source.path in exempt:
            continue
        call = pattern if r"\(" in pattern else rf"(?:{pattern})(?=\s*\()"
        for match in re.finditer(rf"(?<![\w.>])(?:{call})", source.code):
            name = re.match(r"\w+", match.group(0)).group(0)
            yield line_of(source.code, match.start()), f"{name} {why}"
    for pattern, where, exempt, why in WORDS:
        if not starts_with(source.path, where) or source.path in exempt:
            continue
        for match in re.finditer(pattern, source.code):
            yield line_of(source.code, match.start()), f"{match.group(0).strip()} {why}"


def statements(code):
    """Yields (start, end, text, is_body) of what stands outside braces: text up to ';' or up to a body's '{'."""
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n(?:[^\n\\]|\\.)*)*", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                  code, flags=re.M)
    code = re.sub(r'extern\s+"C"\s*\{', lambda m: " " * len(m.group(0)), code)
    depth, parens, start, opened = 0, 0, 0, None
    for at, c in enumerate(code):
        if c == "(" and depth == 0:
            parens += 1
        elif c == ")" and depth == 0:
            parens -= 1
        elif c == "{":
            if depth == 0:
                opened = at
            depth += 1
        elif c == "}":
            depth = max(depth - 1, 0)
            if depth == 0 and opened is not None and is_function(code[start:opened]):
                yield start, at, code[start:opened], True
                start, opened = at + 1, None
        elif c == ";" and depth == 0 and parens == 0:
            yield start, at, code[start:at], False
            start, opened = at + 1, None


def is_function(head):
    head = head.strip()
    return "=" not in head and head.endswith(")") and not re.match(r"(?:typedef|struct\s+\w+\s*$|enum|union)", head)


def parameters(head):
    """Number of parameters of a function's head or prototype; None when it is neither."""
    match = re.search(r"\b\w+\s*\(", head)
    if match is None:
        return None
    depth, count, inner = 0, 1, ""
    for c in head[match.end() - 1:]:
        if c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
            if depth == 0:
                break
        elif c == "," and depth == 1:
            count += 1
        inner += c
    return 0 if inner.strip("( \n") in ("", "void") else count


def function_name(head):
    match = re.search(r"(\w+)\s*\(", head)
    return match.group(1) if match else "?"


def check_functions(source):
    for start, end, head, is_body in statements(source.code):
        first = start + len(source.code[start:]) - len(source.code[start:].lstrip())
        line = line_of(source.code, first)
        is_prototype = not is_body and "(" in head and "=" not in head and not head.strip().startswith("typedef")
        if is_body:
            n = line_of(source.code, end) - line + 1
            if n > MAX_FUNCTION_LINES:
                yield line, f"{function_name(head)} has {n} lines, at most {MAX_FUNCTION_LINES}"
        if is_body or is_prototype:
            n = parameters(head)
            if n is not None and n > MAX_PARAMETERS:
                yield line, f"{function_name(head)} has {n} parameters, at most {MAX_PARAMETERS}: use an options struct"


def is_mutable(declaration):
    """Of a static variable's declaration without its value."""
    declaration = re.sub(r"\[[^\]]*\]", " ", declaration)
    words = declaration.strip()
    if "*" in words:
        return re.search(r"\*\s*const\s+\w+\s*$", words) is None
    return re.search(r"\bconst\b", words) is None


def check_statics(source):
    """No mutable state outside a function, and none kept by one between its calls."""
    if not starts_with(source.path, ("src/",)) or source.path.startswith("src/cli/"):
        return
    for match in re.finditer(r"^[ \t]*static\b([^;={(]*)([;={(])", source.code, flags=re.M):
        if match.group(2) == "(" or re.match(r"\s*(?:inline|WEFT_\w+)\b", match.group(1)):
            continue
        words = match.group(1)
        if "_Thread_local" in words and source.path == "src/base/error.c":
            continue
        if re.match(r"\s*_Static_assert", words):
            continue
        if is_mutable(words):
            yield line_of(source.code, match.start()), f"static{words.rstrip()} is mutable: state hangs off the context"
    for start, _, head, is_body in statements(source.code):
        words = head.split("=")[0].strip()
        if is_body or "(" in words or not words or source.path.endswith(".h"):
            continue
        if re.match(r"(?:static|typedef|struct|union|enum|extern|_Static_assert)\b", words) and "=" not in head:
            continue
        if words.startswith("static") or re.match(r"(?:typedef|_Static_assert)\b", words):
            continue
        if re.match(r"[\w\s*]+\w(\s*\[[^\]]*\])*$", words) and is_mutable(words):
            yield line_of(source.code, start + len(head) - len(head.lstrip())), f"{words} is a mutable global"


FILE_CHECKS = (check_text, check_length, check_opening, check_calls, check_functions, check_statics)


# ---- checks of the tree ----


def check_names(paths):
    seen = {}
    for path in paths:
        name = path.rsplit("/", 1)[-1]
        if not re.fullmatch(r"[a-z0-9_]+\.[ch]", name):
            yield path, 1, "the name of a file is snake_case"
        if name in seen:
            yield path, 1, f"the name {name} is used before, by {seen[name]}"
        seen.setdefault(name, path)


def declared_functions(root):
    """Names of functions the public headers declare WEFT_API -> (file, line)."""
    found = {}
    for file in sorted((root / "include").rglob("*.h")):
        code = blank(file.read_text())
        for match in re.finditer(r"^WEFT_API\b[^;{]*?(\w+)\s*\(", code, flags=re.M):
            found[match.group(1)] = (file.relative_to(root).as_posix(), line_of(code, match.start()))
    return found


def archive_symbols(archive):
    """(name, kind letter, section) of every defined symbol."""
    text = subprocess.run(["nm", "-f", "sysv", "--defined-only", str(archive)], check=True, capture_output=True,
                          text=True).stdout
    for line in text.splitlines():
        fields = [f.strip() for f in line.split("|")]
        if len(fields) >= 7:
            yield fields[0], fields[2], fields[6]


def check_symbols(root, archive, symbols):
    defined = set()
    for name, kind, section in symbols:
        if kind.isupper():
            defined.add(name)
            if not re.match(r"weft_", name):
                yield str(archive), 0, f"{name}: an exported name starts with weft_"
        is_data = section in (".data", ".bss", "*COM*", "COMMON") or re.match(r"\.(data|bss)\.(?!rel\.ro)", section)
        if is_data:
            yield str(archive), 0, f"{name}: is writable data in {section}; state hangs off the context"
    for name, (path, line) in declared_functions(root).items():
        if name not in defined:
            yield path, line, f"{name} is declared and not in the library"


def check_tree(root, archive=None, symbols=None):
    found, paths = [], []
    for top in TOPS:
        for file in sorted((root / top).rglob("*.[ch]")):
            paths.append(file.relative_to(root).as_posix())
    for path in paths:
        source = Source(path, (root / path).read_text(errors="replace"))
        for check in FILE_CHECKS:
            found += [(path, line, why) for line, why in check(source)]
    found += check_names(paths)
    if archive is not None:
        found += check_symbols(root, archive, symbols if symbols is not None else list(archive_symbols(archive)))
    return len(paths), [f"{path}:{line}: {why}" for path, line, why in found]


# ---- self-test --------------------------------------------------------------------------------------------------

GOOD = {
    "src/base/good.c": '''/* A file as it should be: strcpy( and malloc( in a comment are no calls. */
#include "base/good.h"

#define LONG_MACRO(x)                                                                              \\
    do {                                                                                           \\
        (void)(x);                                                                                 \\
    } while (0)

typedef struct pair {
    int first, second;
} pair;

struct weft_thing {
    int free;
};

static const char *const name[] = {"printf(", "a"};
static const pair pairs[2] = {{1, 2}, {3, 4}};

static int sum(const pair *p)
{
    static const int two = 2;
    return p->first + p->second + two;
}

int weft_i_good_sum(int index)
{
    return sum(&pairs[index]) + (name[0] != 0) + thing->free(index);
}
''',
    "src/base/good.h": "/* Its header. */\nint weft_i_good_sum(int index);\n",
    "src/cli/print.c": "/* The program prints. */\nint main(void)\n{\n    printf(\"x\");\n    return 0;\n}\n",
    "include/weft/status.h": "/* Public. */\n#define WEFT_API __attribute__((visibility(\"default\")))\n",
}

HEAD = "/* A file. */\n"
LONG_FUNCTION = HEAD + "void f(void)\n{\n" + "    g();\n" * 120 + "}\n"
WRONG = [
    ("src/nn/a.c", HEAD + "void f(void)\n{\n    strcpy(a, b);\n}\n", 4, "strcpy is banned"),
    ("tests/unit/test_a.c", HEAD + "void f(void)\n{\n    x = atoi(b);\n}\n", 4, "atoi is banned"),
    ("src/nn/a.c", HEAD + "void f(void)\n{\n    free(a);\n}\n", 4, "free belongs"),
    ("src/cli/a.c", HEAD + "void f(void)\n{\n    x = malloc (3);\n}\n", 4, "malloc belongs"),
    ("src/nn/a.c", HEAD + "void f(void)\n{\n    g(getenv(\"X\"));\n}\n", 4, "getenv belongs"),
    ("src/train/a.c", HEAD + "void f(void)\n{\n    exit(1);\n}\n", 4, "exit must not"),
    ("src/train/a.c", HEAD + "void f(void)\n{\n    printf(\"x\");\n}\n", 4, "printf prints"),
    ("src/train/a.c", HEAD + "void f(void)\n{\n    fprintf(stderr, \"x\");\n}\n", 4, "fprintf prints"),
    ("src/train/a.c", HEAD + "void f(void)\n{\n    signal(SIGINT, g);\n}\n", 4, "signal must not"),
    ("src/nn/a.c", HEAD + "void f(void)\n{\n    abort();\n}\n", 4, "abort must not"),
    ("src/nn/a.c", HEAD + "__attribute__((cold)) void f(void);\n", 2, "compiler extension"),
    ("src/nn/a.c", HEAD + "void f(void)\n{\n    __builtin_trap();\n}\n", 4, "compiler extension"),
    ("src/nn/a.c", HEAD + "#include <immintrin.h>\n", 2, "compiler extension"),
    ("src/nn/a.c", HEAD + "#pragma GCC unroll 4\n", 2, "only `omp simd`"),
    ("src/nn/a.c", HEAD + "#pragma omp parallel for\n", 2, "only `omp simd`"),
    ("src/nn/a.c", HEAD + "static int counter;\n", 2, "is mutable"),
    ("src/nn/a.c", HEAD + "static const char *names[] = {\"a\"};\n", 2, "is mutable"),
    ("src/nn/a.c", HEAD + "int counter = 3;\n", 2, "mutable global"),
    ("src/nn/a.c", HEAD + "struct thing state = {0};\n", 2, "mutable global"),
    ("src/nn/a.c", HEAD + "void f(void)\n{\n    static int n = 0;\n    n++;\n}\n", 4, "is mutable"),
    ("src/nn/a.c", HEAD + "static _Thread_local int n;\n", 2, "is mutable"),
    ("src/nn/a.c", HEAD + "int x(void);" + " " * 90 + "int y(void);\n", 2, "columns wide"),
    ("src/nn/a.c", HEAD + "/* " + "x" * 128 + " */\n", 2, "with its comment"),
    ("src/nn/a.c", HEAD + "/* caf\u00e9 */\n", 2, "not ASCII"),
    ("src/nn/a.c", HEAD + "\tint x(void);\n", 2, "tab"),
    ("src/nn/a.c", HEAD + "int x(void); \n", 2, "ends in blanks"),
    ("src/nn/a.c", HEAD + "int x(void);", 2, "does not end"),
    ("src/nn/a.c", "int x(void);\n", 1, "does not open with a comment"),
    ("src/nn/a.c", LONG_FUNCTION, 2, "f has 123 lines"),
    ("src/nn/a.c", HEAD + "int x(void);\n" * 800, 801, "801 lines"),
    ("src/nn/a.h", HEAD + "int x(void);\n" * 300, 301, "301 lines"),
    ("src/parallel/a.c", HEAD + "int x(void);\n" * 500, 501, "501 lines"),
    ("src/nn/a.h", HEAD + "int f(int a, int b, int c, int d, int e, int g, int h, int i);\n", 2, "8 parameters"),
    ("src/nn/a.c", HEAD + "static int f(int a, int b, int (*c)(int, int), int d, int e, int g, int h, int i)\n{\n"
     "    return a;\n}\n", 2, "8 parameters"),
    ("src/nn/good.c", HEAD, 1, "used before"),
    ("src/nn/BadName.c", HEAD, 1, "snake_case"),
    ("include/weft/extra.h", HEAD + "WEFT_API int weft_not_there(\n    int a);\n", 2, "not in the library"),
]
GOOD_SYMBOLS = [("weft_i_good_sum", "T", ".text"), ("pairs", "d", ".data.rel.ro.local"), ("message", "b", ".tbss")]
WRONG_SYMBOLS = [
    (("helper", "T", ".text"), "starts with weft_"),
    (("counter", "b", ".bss"), "writable data"),
    (("weft_i_state", "D", ".data"), "writable data"),
]


def run_case(files, symbols):
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return check_tree(root, "libweft.a", symbols)[1]


def self_test():
    n_wrong = 0
    cases = [(GOOD, GOOD_SYMBOLS, None)]
    for path, text, line, word in WRONG:
        cases.append(({**GOOD, path: text}, GOOD_SYMBOLS, (f"{path}:{line}:", word)))
    for symbol, word in WRONG_SYMBOLS:
        cases.append((GOOD, GOOD_SYMBOLS + [symbol], ("libweft.a:0:", word)))
    for files, symbols, expected in cases:
        found = run_case(files, symbols)
        is_right = not found if expected is None else (
            len(found) == 1 and found[0].startswith(expected[0]) and expected[1] in found[0])
        if not is_right:
            n_wrong += 1
            print(f"self-test: expected {expected}, got {found}")
    print(f"check_rules: self-test of {len(cases)} trees: {n_wrong} wrong")
    return 1 if n_wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent, type=pathlib.Path)
    parser.add_argument("--archive", type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    n_files, found = check_tree(options.root, options.archive)
    for line in found:
        print(line)
    print(f"check_rules: {n_files} files, {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
