"""The structs of fencelock._native have the layout of the headers, as a C compiler has it."""

import ctypes
import os
import shutil
import subprocess
import tempfile
import unittest

from fencelock import _native

HEADERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), *['..'] * 4, 'include')
STRUCTS = {'struct fl_bytes': _native.Bytes, 'struct fl_tls_options': _native.TlsOptions, 'struct fl_client_options': _native.ClientOptions,
           'struct fl_take': _native.Take, 'struct fl_result': _native.Result, 'struct fl_fencing': _native.Fencing,
           'struct fl_event': _native.Event, 'struct fl_watch_options': _native.WatchOptions}


class Layout(unittest.TestCase):
    def test_structs(self):
        cc = shutil.which('cc') or self.skipTest('there is no C compiler')
        lines = []
        for name, struct in STRUCTS.items():
            lines.append('printf("%%zu\\n", sizeof(%s));' % name)
            lines += ['printf("%%zu\\n", offsetof(%s, %s));' % (name, field[0]) for field in struct._fields_]
        with tempfile.TemporaryDirectory() as scratch:
            source, program = os.path.join(scratch, 'layout.c'), os.path.join(scratch, 'layout')
            with open(source, 'w', encoding='utf-8') as f:
                f.write('#include <stddef.h>\n#include <stdio.h>\n#include "fencelock/store_client.h"\nint main(void)\n{\n%s\n}\n' % '\n'.join(lines))
            subprocess.run([cc, '-I', HEADERS, '-o', program, source], check=True)
            said = [int(n) for n in subprocess.run([program], stdout=subprocess.PIPE, check=True).stdout.split()]
        for struct in STRUCTS.values():
            here = [ctypes.sizeof(struct)] + [getattr(struct, field[0]).offset for field in struct._fields_]
            there, said = said[:len(here)], said[len(here):]
            self.assertEqual(here, there, struct)


if __name__ == '__main__':
    unittest.main()
