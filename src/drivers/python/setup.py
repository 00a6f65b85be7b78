"""A wheel has libfencelock.so inside (FENCELOCK_LIBRARY: the one that meson built), so it is one for each platform and for all Pythons."""

import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel


class WithLibrary(build_py):
    def run(self):
        super().run()
        library = os.environ.get('FENCELOCK_LIBRARY')
        if not library or not os.path.exists(library):
            raise SystemExit('set FENCELOCK_LIBRARY to libfencelock.so, which ninja makes in build/src/client')
        shutil.copy(library, os.path.join(self.build_lib, 'fencelock', 'libfencelock.so'))


class Platform(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return 'py3', 'none', super().get_tag()[2]


setup(cmdclass={'build_py': WithLibrary, 'bdist_wheel': Platform})
