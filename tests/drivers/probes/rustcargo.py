"""How the probe of the Rust driver is built: from a copy of the driver, with what cargo gets once."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess

from . import BUILT, HERE, ROOT, skip

CARGO = {'CARGO_NET_RETRY': '1', 'CARGO_HTTP_TIMEOUT': '30', 'CARGO_TERM_QUIET': 'true', 'CARGO_PROFILE_DEV_DEBUG': '0', 'CARGO_INCREMENTAL': '0'}


class RustProbe:
    calls_libc = True # the library does
    driver = os.environ.get('DRIVER_SOURCE') or os.path.join(ROOT, 'src/drivers/rust')
    library = os.path.join(os.path.dirname(BUILT), 'src/client')
    target = os.path.join(BUILT, 'rust-target')
    argv = [os.environ.get('DRIVER_PROBE') or os.path.join(BUILT, 'probe-rust')]

    def build(self):
        if shutil.which('cargo') is None:
            skip('there is no cargo')
        os.environ.update(CARGO, CARGO_TARGET_DIR=self.target, FENCELOCK_LIB_DIR=self.library, FENCELOCK_INCLUDE=os.path.join(ROOT, 'include'),
                          LD_LIBRARY_PATH=self.library)
        os.makedirs(BUILT, exist_ok=True)
        with self.alone():
            self.lay()
        self.program('probe', self.argv[0])

    @contextlib.contextmanager
    def alone(self):
        with open(self.target + '.lock', 'w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def lay(self):
        """A copy of the driver with the probe in it, at a place that its content names: cargo knows again what it has compiled."""
        digest, sources = hashlib.sha256(), {self.driver: '', os.path.join(HERE, 'rust'): 'probe'}
        for source in sources:
            for path in sorted(os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names):
                with open(path, 'rb') as f:
                    digest.update(os.path.relpath(path, source).encode() + b'\0' + f.read())
        self.copy = os.path.join(BUILT, 'rust-' + digest.hexdigest()[:12])
        if os.path.exists(os.path.join(self.copy, '.laid')):
            return
        shutil.rmtree(self.copy, ignore_errors=True)
        for source, place in sources.items():
            shutil.copytree(source, os.path.join(self.copy, place), ignore=shutil.ignore_patterns('target', 'Cargo.lock'), dirs_exist_ok=True)
        self.write_page(os.path.join(self.copy, 'probe', 'src', 'bin'))
        open(os.path.join(self.copy, '.laid'), 'w').close()

    def program(self, name, target):
        folder = os.path.join(self.copy, 'probe')
        with self.alone():
            if subprocess.run(['cargo', 'fetch'], cwd=folder).returncode != 0:
                skip('the crates that the driver stands on cannot be had')
            if subprocess.run(['cargo', 'build', '--offline', '--bin', name], cwd=folder).returncode != 0:
                raise SystemExit('the probe cannot be built')
            shutil.copy(os.path.join(self.target, 'debug', name), target + '.new')
            os.replace(target + '.new', target)

    def own_tests(self):
        return ['cargo', 'test', '--offline', '--all-features', '--', '--test-threads', '2', '--include-ignored'], self.copy

    def fences(self, scratch):
        self.program('fences', scratch)
        return [scratch]

    def frameworks(self, scratch, database):
        """sqlx, with the program of the page."""
        folder = os.path.join(self.copy, 'sqlx')
        shutil.copytree(os.path.join(HERE, 'rust-sqlx'), folder, dirs_exist_ok=True)
        with open(os.path.join(self.driver, 'README.md'), encoding='utf-8') as f:
            program = re.search(r'^```rust,ignore\n(.*?)^```', f.read(), re.M | re.S)[1]
        with open(os.path.join(folder, 'page.rs'), 'w', encoding='utf-8') as f:
            f.write(program)
        with self.alone():
            if subprocess.run(['cargo', 'fetch'], cwd=folder).returncode != 0:
                return None
            subprocess.run(['cargo', 'build', '--offline'], cwd=folder, check=True)
        return [os.path.join(self.target, 'debug', 'sqlx-probe')], folder, {'POSTGRES_URL': database}

    USER = """#[tokio::main]
async fn main() -> Result<(), fencelock::Error> {
    let locks = fencelock::connect(&std::env::args().nth(1).unwrap())?;
    locks.with("of-the-crate", &fencelock::Options::new(), |lease| async move { lease.check() }).await?;
    locks.close().await;
    Ok(())
}
"""

    def package(self, scratch, url):
        """Both crates as cargo packs them, unpacked and used by a program that has nothing else; and their pages are made without a warning."""
        packed, user = os.path.join(scratch, 'packed'), os.path.join(scratch, 'user')
        shutil.copytree(self.driver, os.path.join(scratch, 'rust'))
        for crate in ('', 'fencelock-sys'):
            shutil.copy(os.path.join(ROOT, 'LICENSE'), os.path.join(scratch, 'rust', crate))
        os.makedirs(packed)
        os.makedirs(os.path.join(user, 'src'))
        yield ['sh', '-c', 'cd "$1" && cargo package --offline --allow-dirty --no-verify --workspace --target-dir "$2"', 'sh',
               os.path.join(scratch, 'rust'), packed], {}
        crates = os.path.join(packed, 'package')
        for name in sorted(os.listdir(crates)):
            if name.endswith('.crate'):
                yield ['tar', '-C', user, '-xzf', os.path.join(crates, name)], {}
        with open(os.path.join(user, 'Cargo.toml'), 'w', encoding='utf-8') as f:
            f.write('[package]\nname = "user"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n[dependencies]\nfencelock = "0.1.0"\n'
                    'tokio = { version = "1", features = ["macros", "rt-multi-thread"] }\n[patch.crates-io]\n'
                    'fencelock = { path = "fencelock-0.1.0" }\nfencelock-sys = { path = "fencelock-sys-0.1.0" }\n')
        with open(os.path.join(user, 'src', 'main.rs'), 'w', encoding='utf-8') as f:
            f.write(self.USER)
        yield ['sh', '-c', 'cd "$1" && cargo run --offline -- "$2"', 'sh', user, url], {}
        yield ['sh', '-c', 'cd "$1" && cargo doc --offline --no-deps --all-features --lib', 'sh', os.path.join(scratch, 'rust')], {'RUSTDOCFLAGS': '-D warnings'}

    PAGE = """%(program)s

#[allow(dead_code)]
async fn work(_token: u64) -> Result<(), Error> {
    Ok(())
}

#[allow(dead_code)]
async fn rest(locks: fencelock::Client) -> Result<(), Error> {
%(others)s
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (url, database) = (std::env::args().nth(1).unwrap(), std::env::args().nth(2).unwrap());
    let (mut db, connection) = tokio_postgres::connect(&database, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    add(&url, &mut db, 10).await
}
"""

    def write_page(self, folder):
        """The program of src/drivers/rust/README.md, which adds 10 to account/42; its other blocks are compiled with it."""
        with open(os.path.join(self.driver, 'README.md'), encoding='utf-8') as f:
            program, *others = re.findall(r'^```rust\n(.*?)^```', f.read(), re.M | re.S)
        assert len(program.splitlines()) <= 15 and len(others) == 3
        os.makedirs(folder)
        with open(os.path.join(folder, 'page.rs'), 'w', encoding='utf-8') as f:
            f.write(self.PAGE % {'program': program, 'others': '\n'.join('{%s}' % block for block in others)})

    def page(self, scratch):
        self.program('page', scratch)
        return [scratch]

    def kubernetes(self, scratch):
        return None
