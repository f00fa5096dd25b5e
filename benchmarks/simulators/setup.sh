#!/usr/bin/env bash
# benchmarks/simulators/setup.sh mjlab|isaaclab|smax DIR: a virtual environment in DIR with the simulator and this library.
# Python 3.11 or newer. mjlab: 1.5 GB, isaaclab: 2.5 GB, smax: 1.8 GB, each with torch for the CPU; two to five minutes.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python3 -m venv "$2"
pip="$2/bin/pip install --quiet --disable-pip-version-check"
case $1 in
mjlab) $pip torch==2.13.0 mjlab==1.6.0 ;;
isaaclab) # without Isaac Sim: Newton's physics alone
    $pip torch==2.13.0 newton==1.6.1 newton-usd-schemas usd-core mujoco==3.12.0 mujoco-warp==3.12.0 "warp-lang>=1.17" \
        "gymnasium>=1.2" hydra-core lazy_loader prettytable pyyaml rich tqdm cffi packaging
    $pip --no-deps --ignore-requires-python isaaclab==3.0.0
    ;;
smax) $pip torch==2.13.0 "jaxmarl>=0.2" ;; # with gymnax, which holds gymnasium below 1.4
*) echo "mjlab, isaaclab or smax, not $1" && exit 2 ;;
esac
$pip matplotlib "gymnasium>=1.1,<2"
$pip --no-deps --editable "$root"
