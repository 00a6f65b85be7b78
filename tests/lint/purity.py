#!/usr/bin/env python3
"""Checks with nm that pure archives ask for nothing impure: no clock, socket, file, thread, libuv, raft or SQLite.

purity.py BASE ARCHIVE...
    BASE is what the others stand on; its clock, turn.c (which looks at it), folder.c, lines.c, listen.c, part.c, process.c, standard.c, timer.c, write.c and base.c
    (which aborts with a message) may be impure, the rest not.
    In the other archives every object must be pure.
purity.py --no-loop ARCHIVE...
    checks of archives that may ask for more than pure ones, but not for what a simulation could not give: libuv, sockets,
    threads, the clock, and functions of the node, which are handed to them in a table. (INFO opens a file of /proc.)
purity.py --self-test CC...
    compiles offences with the compiler given and checks that each is found
An undefined symbol is fine when it is in the list below, or is defined in the same archive or in a pure object of BASE,
or belongs to the compiler's own instrumentation.
"""
import os
import re
import subprocess
import sys
import tempfile

ALLOWED = {
    # memory and strings
    "malloc", "calloc", "realloc", "free", "memchr", "memcmp", "memcpy", "memmove", "memset", "memrchr", "memmem",
    "bcmp", "strchr", "strcmp", "strlen", "strncmp", "strnlen", "strrchr", "strspn", "strcspn", "strstr",
    "qsort", "bsearch", "snprintf", "vsnprintf",
    "strtoul", "strtoull", "strtol", "strtoll",
    # what compilers and hardening put in
    "__memcpy_chk", "__memmove_chk", "__memset_chk", "__snprintf_chk", "__vsnprintf_chk", "__stack_chk_fail",
    "_GLOBAL_OFFSET_TABLE_", "__cpu_model", "__cpu_indicator_init",
    # defined in base.c: the last words of a dying process, and allocation that ends in them
    "fli_assert_fail", "fli_fatal", "fli_xmalloc", "fli_xcalloc", "fli_region_map", "fli_region_unmap",
    "fl_err_class", "fl_err_name", "fl_strerror",
}
INSTRUMENTATION = re.compile(r"^(__asan_|__ubsan_|__tsan_|__msan_|__lsan_|__sanitizer_|__sancov_|__gcov_|__llvm_|"
                             r"__start___|__stop___|__odr_asan|__interceptor_)")
LOOP = re.compile(r"^(uv_|raft_|node_|pthread_|clock_gettime$|time$|gettimeofday$|nanosleep$|socket$|connect$|accept4?$|bind$|"
                  r"listen$|send$|sendto$|sendmsg$|recv$|recvfrom$|recvmsg$|poll$|epoll_|read$|write$|"
                  r"writev$|net_(?!(tls|loop|memory)_info$)|fli_clock_)")
IMPURE_OBJECTS = re.compile(r"(^|[_/])(clock|clock_cpu|turn|base|folder|lines|listen|part|process|standard|timer|write)\.c\.o$")


def symbols(archive):
    """Object -> (defined, undefined), both sets of names."""
    text = subprocess.run(["nm", "-A", "-P", archive], check=True, capture_output=True, text=True).stdout
    objects = {}
    for line in text.splitlines():
        # libx.a[obj.c.o]: name type [value size]; a thin archive puts the object's path there.
        found = re.match(r"^.*?\[(.*)\]: (\S+) (\S)", line) or re.match(r"^(?:.*:)?(\S+\.o): (\S+) (\S)", line)
        if not found:
            raise SystemExit(f"purity: cannot read this line of nm: {line}")
        name, symbol, kind = found.groups()
        defined, undefined = objects.setdefault(name, (set(), set()))
        (undefined if kind in "Uw" else defined).add(symbol)
    if not objects:
        raise SystemExit(f"purity: there is nothing in {archive}")
    return objects


def offences(archive, which, provided):
    """Yields one line for each impure symbol that a chosen object of an archive asks for."""
    objects = symbols(archive)
    chosen = {name: pair for name, pair in objects.items() if which(name)}
    if not chosen:
        raise SystemExit(f"purity: no object of {archive} was to be checked")
    own = set().union(*(defined for defined, _ in chosen.values()))
    for name, (_, undefined) in sorted(chosen.items()):
        for symbol in sorted(undefined - own - provided - ALLOWED):
            if not INSTRUMENTATION.match(symbol):
                yield f"{os.path.basename(archive)}: {os.path.basename(name)} uses {symbol}"


def check(base, pure):
    def base_is_pure(name):
        return not IMPURE_OBJECTS.search(name)

    found = list(offences(base, base_is_pure, set()))
    provided = set().union(*(defined for name, (defined, _) in symbols(base).items() if base_is_pure(name)))
    for archive in pure:  # what one of them provides is checked where it stands
        provided |= set().union(*(defined for defined, _ in symbols(archive).values()))
    for archive in pure:
        found += offences(archive, lambda name: True, provided)
    return found


def check_loop(archives):
    found = []
    for archive in archives:
        for name, (_, undefined) in sorted(symbols(archive).items()):
            found += [f"{os.path.basename(archive)}: {os.path.basename(name)} uses {symbol}" for symbol in sorted(undefined)
                      if LOOP.match(symbol)]
    return found


def build(compiler, folder, library, files):
    objects = []
    for name, text in files.items():
        source = os.path.join(folder, name)
        with open(source, "w", encoding="utf-8") as f:
            f.write(text)
        objects.append(source + ".o")
        subprocess.run(compiler + ["-O1", "-w", "-c", source, "-o", source + ".o"], check=True)
    archive = os.path.join(folder, library)
    subprocess.run(["ar", "rcs", archive] + objects, check=True)
    return archive


def self_test(compiler):
    base_files = {
        "buf.c": "int fli_buf(void) { return 1; }",
        "clock.c": "#include <time.h>\nlong fli_clock_ms(void) { return time(0); }",
    }
    good = "#include <string.h>\nint fli_buf(void);\nunsigned long f(const char *s) { return strlen(s) + fli_buf(); }"
    bad = {
        "time": "#include <time.h>\nlong f(void) { return time(0); }",
        "clock_gettime": "#include <time.h>\nint f(struct timespec *t) { return clock_gettime(0, t); }",
        "fli_clock_ms": "long fli_clock_ms(void);\nlong f(void) { return fli_clock_ms(); }",
        "puts": '#include <stdio.h>\nint f(void) { return puts("x"); }',
        "fopen": '#include <stdio.h>\nvoid *f(void) { return fopen("x", "r"); }',
        "write": '#include <unistd.h>\nlong f(void) { return write(1, "x", 1); }',
        "socket": "#include <sys/socket.h>\nint f(void) { return socket(1, 2, 3); }",
        "pthread_create": "#include <pthread.h>\nint f(pthread_t *t) { return pthread_create(t, 0, 0, 0); }",
        "rand": "#include <stdlib.h>\nint f(void) { return rand(); }",
        "getenv": '#include <stdlib.h>\nchar *f(void) { return getenv("X"); }',
        "uv_run": "int uv_run(void *, int);\nint f(void) { return uv_run(0, 0); }",
        "raft_apply": "int raft_apply(void *);\nint f(void) { return raft_apply(0); }",
        "fli_resp_next": "int fli_resp_next(void);\nint f(void) { return fli_resp_next(); }",
    }
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        base = build(compiler, folder, "libbase.a", base_files)
        pure = build(compiler, folder, "libpure.a", {"good.c": good})
        if check(base, [pure]):
            print("self-test: pure objects are blamed:", check(base, [pure]))
            failed += 1
        for symbol, text in bad.items():
            culprit = build(compiler, folder, f"lib{symbol}.a", {"bad.c": text})
            found = check(base, [pure, culprit])
            if len(found) != 1 or not found[0].endswith(f"uses {symbol}"):
                print(f"self-test: {symbol}: found {found}")
                failed += 1
        for symbol in ("time", "socket", "write", "uv_run", "raft_apply"):
            culprit = os.path.join(folder, f"lib{symbol}.a")
            if check_loop([pure]) or len(check_loop([culprit])) != 1:
                print(f"self-test: --no-loop, {symbol}: found {check_loop([culprit])}")
                failed += 1
        culprit = build(compiler, folder, "libbadbase.a", dict(base_files, **{"map.c": bad["time"]}))
        if len(check(culprit, [pure])) != 1:
            print("self-test: an impure object of base was not found")
            failed += 1
    print(f"self-test: {len(bad) + 2} archives, {failed} wrong")
    return 1 if failed else 0


def main():
    args = sys.argv[1:]
    if args and args[0] == "--self-test":
        return self_test(args[1:] or ["cc"])
    if args and args[0] == "--no-loop":
        found = check_loop(args[1:])
        print("\n".join(found))
        return 1 if found else 0
    if len(args) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = check(args[0], args[1:])
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
