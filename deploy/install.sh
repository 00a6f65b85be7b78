#!/bin/sh
# Installs fencelock from the folder that this script is in (the unpacked fencelock-VERSION-linux-ARCH.tar.gz), or removes it again.
#
#   ./install.sh [--prefix DIR] [--dry-run]              copies the programs, units, man pages and completions: /usr/local
#   ./install.sh --uninstall [--prefix DIR] [--dry-run]  removes exactly what was copied; data and configuration stay
#   ./install.sh --check                                 only whether the files are those of the release
#
# It says each thing that it does. Nothing is started, and no user is made: `systemctl enable --now fencelockd` does both where
# systemd reads DIR (/usr/local and /usr), and docs/operations/service.md tells more.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local
act=install
dry=no

die() {
    printf 'install: error: %s\n' "$*" >&2
    exit 1
}
say() { printf 'install: %s\n' "$*"; }
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }

while [ $# -gt 0 ]; do
    case $1 in
    --prefix)
        [ $# -gt 1 ] || die "--prefix needs a folder"
        prefix=$2
        shift
        ;;
    --prefix=*) prefix=${1#*=} ;;
    --uninstall) act=uninstall ;;
    --check) act=check ;;
    --dry-run) dry=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) die "unknown option: $1; see --help" ;;
    esac
    shift
done
case $prefix in
/*) ;;
*) die "--prefix needs a path that begins with /, not '$prefix'" ;;
esac
list=$prefix/share/fencelock/installed

check() {
    [ -f "$here/SHA256SUMS" ] || die "$here/SHA256SUMS is missing: unpack the whole tarball"
    (cd "$here" && sha256sum --quiet -c SHA256SUMS) || die "a file differs from the release: get the tarball again"
    # A kernel says "Exec format error" of programs for another processor.
    "$here/bin/fencelock" --version >/dev/null 2>&1 || die "these programs do not run on this machine ($(uname -sm)): get the tarball for it"
}

run() {
    if [ $dry = yes ]; then say "would run: $*"; else "$@"; fi
}

install_files() {
    check
    [ $dry = yes ] || mkdir -p "$prefix" 2>/dev/null || die "$prefix cannot be made: run this as root, or give --prefix a folder of yours"
    [ $dry = yes ] || [ -w "$prefix" ] || die "$prefix cannot be written: run this as root, or give --prefix a folder of yours"
    if [ $dry = no ]; then
        mkdir -p "$(dirname "$list")"
        : >"$list.new"
    fi
    (cd "$here" && find bin lib share -type f | LC_ALL=C sort) | while read -r file; do
        say "$prefix/$file"
        [ $dry = no ] || continue
        mkdir -p "$prefix/$(dirname "$file")"
        # Under another name first: a program that runs keeps its file, and a copy that breaks off leaves the old one.
        case $file in
        lib/systemd/*) sed "s|/usr/local/bin|$prefix/bin|g" "$here/$file" >"$prefix/$file.new" ;;
        *) cp "$here/$file" "$prefix/$file.new" ;;
        esac
        case $file in
        bin/* | share/fencelock/*) chmod 0755 "$prefix/$file.new" ;;
        *) chmod 0644 "$prefix/$file.new" ;;
        esac
        mv -f "$prefix/$file.new" "$prefix/$file"
        printf '%s\n' "$file" >>"$list.new"
    done
    [ $dry = yes ] || mv -f "$list.new" "$list"
    say "done: $prefix/bin/fencelockd, fencelock and fencelock-store"
    case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) say "$prefix/bin is not in PATH: export PATH=$prefix/bin:\$PATH" ;;
    esac
    say "next: fencelockd &    then: fencelock acquire job"
}

uninstall_files() {
    [ -f "$list" ] || die "$list is missing: nothing was installed in $prefix by this script"
    while read -r file; do
        say "removing $prefix/$file"
        run rm -f "$prefix/$file"
    done <"$list"
    # Folders that are empty now, the deepest first.
    [ $dry = yes ] || while read -r file; do dirname "$file"; done <"$list" | LC_ALL=C sort -ru | while read -r folder; do
        (cd "$prefix" && rmdir -p "$folder" 2>/dev/null) || true
    done
    run rm -f "$list"
    [ $dry = yes ] || rmdir "$prefix/share/fencelock" 2>/dev/null || true
    say "done; data directories and configuration files stay where they are"
}

case $act in
check) check && say "all files are those of the release" ;;
install) install_files ;;
uninstall) uninstall_files ;;
esac
