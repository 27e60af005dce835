#!/bin/sh
# Installs the millrace program from a folder or an address that has an archive
# and SHA256SUMS. Nothing is installed when a sum is wrong.
#
#	sh install.sh FROM [TO]     FROM: a folder, or https://…; TO: default /usr/local/bin
set -eu
umask 022

fail() { echo "install.sh: $*" >&2; exit 1; }

[ $# -ge 1 ] && [ $# -le 2 ] || fail "usage: sh install.sh FROM [TO]"
from=${1%/} to=${2:-/usr/local/bin}
case $(uname -s) in Linux) os=linux ;; Darwin) os=darwin ;; *) fail "no archive for $(uname -s)" ;; esac
case $(uname -m) in x86_64 | amd64) arch=amd64 ;; aarch64 | arm64) arch=arm64 ;; *) fail "no archive for $(uname -m)" ;; esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() { # a name, from there to here
	case $from in
	https://*) curl -fsSL --proto '=https' --max-time 600 -o "$work/$1" "$from/$1" ;;
	*://*) fail "only https:// or a folder" ;;
	*) cp "$from/$1" "$work/$1" ;;
	esac || fail "cannot get $1 from $from"
}
fetch SHA256SUMS
line=$(grep -E "^[0-9a-f]{64}  millrace-[0-9A-Za-z.~+-]+-$os-$arch\.tar\.gz$" "$work/SHA256SUMS") || fail "SHA256SUMS names no archive for $os/$arch"
[ "$(printf '%s\n' "$line" | wc -l)" -eq 1 ] || fail "SHA256SUMS names several archives for $os/$arch"
archive=${line#*  }
fetch "$archive"
if command -v sha256sum >/dev/null; then sum=$(sha256sum <"$work/$archive"); else sum=$(shasum -a 256 <"$work/$archive"); fi
[ "${sum%% *}" = "${line%% *}" ] || fail "the sum of $archive is wrong: it is damaged, or not what SHA256SUMS was made for"
tar -xzf "$work/$archive" -C "$work"
mkdir -p "$to"
# Beside it and renamed: a running program goes on with the old file.
cp "$work/${archive%.tar.gz}/millrace" "$to/.millrace.new.$$"
chmod 755 "$to/.millrace.new.$$"
mv -f "$to/.millrace.new.$$" "$to/millrace"
echo "$to/millrace is installed"
