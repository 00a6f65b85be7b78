#!/usr/bin/env python3
"""embed.py IN OUT NAME: a file as an array of C, so that a program needs nothing beside it."""
import sys

path_in, path_out, name = sys.argv[1:4]
with open(path_in, "rb") as f:
    data = f.read()
lines = [", ".join(str(b) for b in data[i:i + 20]) for i in range(0, len(data), 20)]
with open(path_out, "w", encoding="ascii") as f:
    f.write('/* Made by embed.py. */\n#include "server/page_state.h"\n\n')
    f.write(f"const unsigned char {name}[] = {{\n    " + ",\n    ".join(lines) + ",\n};\n")
    f.write(f"const size_t {name}_len = sizeof {name};\n")
