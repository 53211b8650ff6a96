#!/usr/bin/env bash
# Builds PgBouncer from Debian's source package into FOLDER, for the tests: version 1.21 or newer keeps prepared
# statements in transaction mode, and a stable Debian may have an older one. A newer one on the PATH is used as it is.
set -euo pipefail
folder=${1:?usage: install_pgbouncer.sh FOLDER}
suite=trixie
export DEBIAN_FRONTEND=noninteractive

is_new() { "$1" --version 2>/dev/null | head -1 | awk '{ split($2, v, "."); exit !(v[1] > 1 || v[2] >= 21) }'; }

for known in "$folder/pgbouncer" "$(command -v pgbouncer || true)"; do
    if [ -x "$known" ] && is_new "$known"; then exit 0; fi
done
apt-get -qq update
apt-get -qq install --no-install-recommends libevent-dev pkg-config gcc make >/dev/null

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/archives/partial" "$folder"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
# The mirror that this machine's packages come from.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u | grep '/debian/$' | head -1)
echo "deb-src [signed-by=$keys] ${mirror:?no Debian mirror is configured} $suite main" >"$work/sources.list"
# With lists of its own, so that the machine's sources stay as they are.
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work")
cd "$work"
"${apt[@]}" update
"${apt[@]}" source --download-only pgbouncer >/dev/null
tar xf pgbouncer_*.orig.tar.gz
cd pgbouncer-*/
./configure --without-openssl --without-cares --disable-evdns >/dev/null
make -j2 CFLAGS="-O1" pgbouncer >/dev/null 2>&1
cp pgbouncer "$folder/pgbouncer"
