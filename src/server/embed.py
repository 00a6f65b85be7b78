#!/usr/bin/env python3
"""embed.py IN OUT NAME HEADER: a file as an array of C that ends with a zero, so that a program needs nothing beside it."""
import sys

path_in, path_out, name, header = sys.argv[1:5]
with open(path_in, "rb") as f:
    data = f.read() + b"\0"
lines = [", ".join(str(b) for b in data[i:i + 20]) for i in range(0, len(data), 20)]
with open(path_out, "w", encoding="ascii") as f:
    f.write(f'/* Made by embed.py. */\n#include "{header}"\n\n')
    f.write(f"const unsigned char {name}[] = {{\n    " + ",\n    ".join(lines) + ",\n};\n")
    f.write(f"const size_t {name}_len = sizeof {name} - 1;\n")
