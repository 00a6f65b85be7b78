"""How each driver's probe is built: below the build directory, or at DRIVER_PROBE, of the driver at DRIVER_SOURCE."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILT = os.path.join(os.environ.get('BUILD_DIR') or os.path.join(ROOT, 'build'), 'drivers')


SKIP = 77 # meson's exit code for a test that cannot run here


def skip(why):
    print('skipped: ' + why)
    sys.exit(SKIP)


class GoProbe:
    module = 'github.com/fencelock/fencelock/src/drivers/go'
    driver = os.environ.get('DRIVER_SOURCE') or os.path.join(ROOT, 'src/drivers/go')
    argv = [os.environ.get('DRIVER_PROBE') or os.path.join(BUILT, 'probe-go')]

    def build(self):
        """From a copy, since the driver's place is part of go.mod."""
        if shutil.which('go') is None:
            skip('there is no go')
        with tempfile.TemporaryDirectory() as scratch:
            self.program(os.path.join(HERE, 'go'), scratch, self.argv[0])

    def program(self, source, scratch, target):
        copy = os.path.join(scratch, 'program')
        shutil.copytree(source, copy)
        subprocess.run(['go', 'mod', 'edit', '-replace', '%s=%s' % (self.module, self.driver)], cwd=copy, check=True)
        if subprocess.run(['go', 'mod', 'download'], cwd=copy).returncode != 0:
            skip('the modules that the driver stands on cannot be had')
        if subprocess.run(['go', 'build', '-o', target, '.'], cwd=copy).returncode != 0:
            sys.exit('the probe cannot be built')

    def own_tests(self):
        return ['go', 'test', '-count=1', './...'], self.driver

    PAGE = """package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	fencelock "%(module)s"
	"%(module)s/pgfence"
	_ "github.com/jackc/pgx/v5/stdlib"
)

%(functions)s

func schedule(context.Context, int64) error { return nil }

func fragments(ctx context.Context, locks *fencelock.Client) {
%(fragments)s
}

func main() {
	locks, err := fencelock.Connect(os.Args[1])
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("pgx", os.Args[2])
	if err == nil {
		err = add(context.Background(), locks, db, 10)
	}
	if err != nil {
		panic(err)
	}
}
"""

    def page(self, scratch):
        """The program of docs/clients/go.md, which adds 10 to account/42, and every other block of the page, compiled."""
        with open(os.path.join(ROOT, 'docs/clients/go.md'), encoding='utf-8') as f:
            blocks = re.findall(r'^```go\n(.*?)^```', f.read(), re.M | re.S)
        functions = [b for b in blocks if b.startswith('func ')]
        fragments = ['{\n%s\n_ = err\n}' % b for b in blocks if not b.startswith('func ')]
        assert functions and fragments
        source = os.path.join(scratch, 'page')
        shutil.copytree(os.path.join(HERE, 'go'), source)
        with open(os.path.join(source, 'main.go'), 'w', encoding='utf-8') as f:
            f.write(self.PAGE % {'module': self.module, 'functions': '\n'.join(functions), 'fragments': '\n'.join(fragments)})
        target = os.path.join(scratch, 'add')
        self.program(source, scratch, target)
        return [target]


PROBES = {'go': GoProbe()}
