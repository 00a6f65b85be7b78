#!/usr/bin/env python3
"""Checks that includes go downward only (src/README.md): the order of the layers is that of src/meson.build; and that
in some layers none goes in a circle.

layers.py ROOT         checks the tree at ROOT
layers.py --self-test  checks that each kind of offence is found
"""
import os
import re
import sys

import source_tree

# Layers of one floor that must not see each other, although one of them stands earlier in the list.
SIBLINGS = [{"wire", "machine", "fence", "log"}]

# Pure layers: no I/O, no clocks, no threads, no libraries. Files of them that are allowed to be impure.
PURE = {"base", "wire", "frontdoor", "machine"}
IMPURE_FILES = {"base/clock.c", "base/clock_cpu.c", "base/base.c", "base/folder.c", "base/listen.c", "base/listen.h", "base/part.c",
                "base/lines.c", "base/process.c", "base/process.h", "base/standard.c", "base/timer.c", "base/write.c"}
PURE_SYSTEM = {
    "assert.h", "ctype.h", "inttypes.h", "limits.h", "stdalign.h", "stdarg.h", "stdbool.h", "stddef.h", "stdint.h",
    "stdio.h",  # for snprintf; purity.py sees to it that nothing else of it is used
    "stdlib.h", "string.h", "nmmintrin.h",
}

# Layers without an include circle among their units, see units().
NO_CIRCLES = {"link", "client", "cli", "server", "redlock"}

# What a public header may include besides public headers: it must work in anybody's program.
PUBLIC_SYSTEM = {"stdbool.h", "stddef.h", "stdint.h", "string.h"}
# Except the header that is for programs which have that library anyway.
PUBLIC_EXTRA = {"fencelock/uv.h": {"uv.h"}}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def layer_order(root):
    with open(os.path.join(root, "src", "meson.build"), encoding="utf-8") as f:
        return re.findall(r"^\s*subdir\('([^']+)'\)", f.read(), re.M)


def sources(top):
    for folder, _, names in sorted(os.walk(top)):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                yield os.path.join(folder, name)


def includes(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        for number, line in enumerate(f, 1):
            found = INCLUDE.match(line)
            if found:
                yield number, found.group(1), found.group(2)


def check_private(root, order, layer, inside, quoted, where):
    """An #include "..." of a file in src."""
    parts = quoted.split("/")
    if len(parts) != 2:
        yield f'{where}: "{quoted}": write "layer/file.h" or "fencelock/file.h"'
        return
    target, name = parts
    if target == "fencelock":
        if not os.path.exists(os.path.join(root, "include", quoted)):
            yield f'{where}: "{quoted}": there is no such public header'
        return
    if target not in order:
        yield f'{where}: "{quoted}": {target} is no layer of src/meson.build'
        return
    if not os.path.exists(os.path.join(root, "src", quoted)):
        yield f'{where}: "{quoted}": there is no such file'
    if target == layer:
        return
    if any(target in siblings and layer in siblings for siblings in SIBLINGS):
        yield f'{where}: "{quoted}": {layer} and {target} must not see each other'
    elif order.index(target) > order.index(layer):
        yield f'{where}: "{quoted}": {target} is above {layer}; includes go downward only'
    if name.endswith("_private.h"):
        yield f'{where}: "{quoted}": private to {target}'


def units(layer_files):
    """path -> unit: a header and its .c file are one; so are a X_private.h, X.h and whoever includes the first."""
    found = {}
    for path, quoted in layer_files.items():
        name = re.sub(r"\.[ch]$", "", path)
        private = sorted((q for q in quoted if q.endswith("_private.h")), key=lambda q: -len(os.path.commonprefix([q, path])))
        found[path] = re.sub(r"_private(\.h)?$", "", private[0] if private and not name.endswith("_private") else name)
    return found


def circles(root, layer):
    """Units of a layer that include each other, in a circle, one line for each."""
    src = os.path.join(root, "src")
    layer_files = {os.path.relpath(p, src): {q for _, q, _ in includes(p) if q and q.startswith(layer + "/")}
                   for p in sources(os.path.join(src, layer))}
    unit = units(layer_files)
    edges = {}
    for path, quoted in layer_files.items():
        edges.setdefault(unit[path], {}).update((unit[q], (path, q)) for q in quoted if q in unit and unit[q] != unit[path])
    done = set()

    def walk(name, way):
        if name in way:
            circle = way[way.index(name):]
            path, quoted = edges[circle[-1]][name]
            yield f'src/{path}: "{quoted}": closes a circle of includes: {" -> ".join(circle + [name])}'
        elif name not in done:
            for other in sorted(edges.get(name, {})):
                yield from walk(other, way + [name])
            done.add(name)

    for name in sorted(edges):
        yield from walk(name, [])


def check(root):
    """Yields one line for each offence."""
    order = layer_order(root)
    src = os.path.join(root, "src")
    for path in sources(src):
        inside = os.path.relpath(path, src)
        layer = inside.split(os.sep)[0]
        if layer not in order:
            yield f"src/{inside}: {layer} is no layer of src/meson.build"
            continue
        for number, quoted, system in includes(path):
            where = f"src/{inside}:{number}"
            if quoted is not None:
                yield from check_private(root, order, layer, inside, quoted, where)
            elif layer in PURE and inside not in IMPURE_FILES and system not in PURE_SYSTEM:
                yield f"{where}: <{system}>: {layer} is pure"
    for layer in sorted(NO_CIRCLES & set(order)):
        yield from circles(root, layer)
    public = os.path.join(root, "include")
    for path in sources(public):
        inside = os.path.relpath(path, public)
        for number, quoted, system in includes(path):
            where = f"include/{inside}:{number}"
            if quoted is not None and not os.path.exists(os.path.join(public, quoted)):
                yield f'{where}: "{quoted}": a public header includes public headers only'
            if system is not None and system not in PUBLIC_SYSTEM | PUBLIC_EXTRA.get(inside, set()):
                yield f"{where}: <{system}>: a public header must not ask for it"


def self_test():
    good = {
        "src/meson.build": "subdir('base')\nsubdir('wire')\nsubdir('machine')\nsubdir('fence')\nsubdir('net')\n",
        "include/fencelock/types.h": "#include <stdint.h>\n",
        "include/fencelock/client.h": '#include "fencelock/types.h"\n',
        "src/base/base.h": '#include "fencelock/types.h"\n',
        "src/base/clock.c": '#include "base/base.h"\n#include <time.h>\n',
        "src/wire/resp.h": '#include "base/base.h"\n#include <string.h>\n',
        "src/machine/machine.h": '#include "base/base.h"\n',
        "src/fence/rule.c": '#include "base/base.h"\n#include <sqlite3.h>\n',
        "src/net/net_private.h": "\n",
        "src/net/net.c": '#include "net/net_private.h"\n#include "wire/resp.h"\n#include <uv.h>\n',
    }
    bad = {
        "upward": ("src/base/bad.c", '#include "wire/resp.h"\n'),
        "machine sees wire": ("src/machine/bad.c", '  # include "wire/resp.h"\n'),
        "wire sees machine": ("src/wire/bad.h", '#include "machine/machine.h"\n'),
        "fence sees machine": ("src/fence/bad.c", '#include "machine/machine.h"\n'),
        "no layer in it": ("src/wire/bad.c", '#include "resp.h"\n'),
        "way up": ("src/wire/bad.c", '#include "../base/base.h"\n'),
        "unknown file": ("src/wire/bad.c", '#include "base/nothing.h"\n'),
        "unknown public header": ("src/wire/bad.c", '#include "fencelock/nothing.h"\n'),
        "unknown layer": ("src/attic/bad.c", "\n"),
        "another's private header": ("src/net/sub.c", '#include "base/x_private.h"\n'),
        "clock in base": ("src/base/bad.c", "#include <time.h>\n"),
        "libuv in wire": ("src/wire/bad.c", "#include <uv.h>\n"),
        "raft in machine": ("src/machine/bad.c", "#include <raft.h>\n"),
        "threads in machine": ("src/machine/bad.c", "#include <pthread.h>\n"),
        "public sees private": ("include/fencelock/bad.h", '#include "base/base.h"\n'),
        "public sees libuv": ("include/fencelock/bad.h", "#include <uv.h>\n"),
    }

    def offences(extra):
        return source_tree.complaints_of(check, {**good, **dict(extra)})

    good.update({
        "src/meson.build": good["src/meson.build"] + "subdir('client')\n",
        # a private header makes one unit of those that include it
        "src/client/lock.h": "\n",
        "src/client/lock_private.h": '#include "client/lock.h"\n',
        "src/client/lock.c": '#include "client/lock_private.h"\n#include "client/wait.h"\n',
        "src/client/wait.h": "\n",
        "src/client/wait.c": '#include "client/lock_private.h"\n#include "client/link.h"\n',
        "src/client/link.h": "\n",
        "src/client/link.c": '#include "client/link.h"\n',
    })
    bad["two headers in a circle"] = ("src/client/link.h", '#include "client/lock.h"\n')
    bad["a circle through a .c file"] = ("src/client/link.c", '#include "client/lock.h"\n')
    failed = 0
    if offences([]):
        print("self-test: a good tree is blamed:", offences([]))
        failed += 1
    for what, (path, text) in bad.items():
        extra = [(path, text)]
        if "x_private.h" in text:
            extra.append(("src/base/x_private.h", "\n"))
        found = offences(extra)
        if len(found) != 1 or not found[0].startswith(path) and not ("circle" in what and "closes a circle" in found[0]):
            print(f"self-test: {what}: found {found}")
            failed += 1
    print(f"self-test: {len(bad) + 1} trees, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(source_tree.run(__doc__, check, self_test))
