#!/usr/bin/env bash
# Makes an environment with the peers: out/peers, or the folder given. It sees the packages of the
# project's .venv and adds the peers, so that nothing in .venv changes. `make peers` runs this.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=${1:-$root/out/peers}
own=$root/.venv/bin/python
pip() { "$own" -m pip --python "$folder/bin/python" --disable-pip-version-check "$@"; }

"$own" -m venv --clear --without-pip "$folder"
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
shared=$("$own" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$shared')" > "$site/project.pth"
pip install --quiet --no-deps -r "$root/benchmarks/peers/requirements.txt"

# fairseq's own build needs tools of its time. Its batching is one Cython module, built here as it is.
pip download --quiet --no-deps --no-binary :all: --no-build-isolation --dest "$folder" fairseq==0.12.2
tar -xzf "$folder/fairseq-0.12.2.tar.gz" -C "$folder"
cp -r "$folder"/fairseq-0.12.2/fairseq "$folder"/fairseq-0.12.2/fairseq.egg-info "$site/"
module=$site/fairseq/data/data_utils_fast.pyx
sed -i '1i # distutils: language = c++' "$module"
CPLUS_INCLUDE_PATH=$("$own" -c 'import numpy; print(numpy.get_include())') \
  "$folder/bin/python" -m Cython.Build.Cythonize --inplace --quiet "$module"
echo "LENGTHWISE_PEERS_PYTHON=$folder/bin/python"
