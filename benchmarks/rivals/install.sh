#!/usr/bin/env bash
# Makes an environment with other DFlash trainers: out/rivals, or the folder given. It sees the
# packages of the project's .venv, torch and transformers among them, and changes nothing in it.
# `make rivals` runs this.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=${1:-$root/out/rivals}
own=$root/.venv/bin/python

"$own" -m venv --clear --without-pip "$folder"
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
shared=$("$own" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$shared')" > "$site/project.pth"
"$own" -m pip --python "$folder/bin/python" --disable-pip-version-check \
  install --quiet --no-deps -r "$root/benchmarks/rivals/requirements.txt"
echo "LENGTHWISE_RIVALS_PYTHON=$folder/bin/python"
