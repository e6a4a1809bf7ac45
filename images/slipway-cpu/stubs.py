"""Stub libraries in place of CUDA's, for a torch that never meets a GPU: `python3 stubs.py SITE_PACKAGES`.

The package index carries torch for linux only as a build for GPUs. Its shared objects are linked with a dozen
libraries of CUDA, 3.4 GB that nothing calls on a CPU, but without which the dynamic linker refuses to load torch at
all. A library with the right name (SONAME) and the right symbols, versions included, satisfies it.

Every stub function returns 1: in the conventions of these libraries an error, so that code which asks after a GPU all
the same is told no and does not go on with a result that nobody computed. libcudart stays real (nvidia-cuda-runtime,
2 MB): torch calls it when it looks for devices, and it answers truly that there are none.

Needs gcc, and readelf of binutils.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

CUDA = re.compile(r"lib(cu|nv|nccl)\w*\.so")
REAL = ("libcudart.so", "libcuda.so")  # from nvidia-cuda-runtime; the driver's, which torch opens only by dlopen
# Libraries whose symbols carry no version: whose they are is told by how they begin.
UNVERSIONED = {
    "libnccl.so.2": ("nccl", "pnccl"),
    "libcufile.so.0": ("cufile",),
    "libcurand.so.10": ("curand",),
    "libcusparseLt.so.0": ("cusparselt",),
    "libnvshmem_host.so.3": ("nvshmem",),
}


def readelf(option: str, library: Path) -> list[str]:
    command = ["readelf", option, "-W", str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def needed(library: Path) -> set[str]:
    """The names of the CUDA libraries that a shared object is linked with."""
    found = (re.search(r"\(NEEDED\).*\[(.+)\]", line) for line in readelf("-d", library))
    return {match[1] for match in found if match and CUDA.match(match[1])}


def undefined(library: Path) -> set[tuple[str, str, str]]:
    """(library, version, symbol) of everything that a shared object wants from CUDA; version may be empty."""
    found = set()
    for line in readelf("--dyn-syms", library):
        fields = line.split()
        if len(fields) < 8 or fields[6] != "UND":
            continue
        symbol, _, version = fields[7].partition("@")
        version = version.lstrip("@")
        if CUDA.match(version):  # CUDA's versions are the libraries' names
            found.add((version, version, symbol))
            continue
        for name, prefixes in UNVERSIONED.items():
            if symbol.lower().startswith(prefixes):
                found.add((name, version, symbol))
    return found


def compile_stub(path: Path, symbols: dict[str, set[str]]) -> None:
    """One shared object with the symbols of each version."""
    source = "".join(f"int {name}(void) {{ return 1; }}\n" for names in symbols.values() for name in sorted(names))
    versions = "".join(f"{version} {{ global: *; }};\n" for version in symbols if version)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "versions"
        script.write_text(versions, encoding="ascii")
        command = ["gcc", "-w", "-x", "c", "-", "-shared", "-fPIC", "-s", f"-Wl,-soname,{path.name}", "-o", str(path)]
        command += [f"-Wl,--version-script={script}"] if versions else []
        subprocess.run(command, input=source, text=True, check=True)


def main(site_packages: Path) -> int:
    libraries = sorted((site_packages / "torch" / "lib").glob("*.so*"))
    wanted: set[str] = set().union(*(needed(library) for library in libraries))
    symbols: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for library in libraries:
        for name, version, symbol in undefined(library):
            symbols[name][version].add(symbol)
    out = site_packages / "nvidia" / "cu13" / "lib"  # where torch's RPATH looks first
    out.mkdir(parents=True, exist_ok=True)
    shipped = {library.name for library in libraries}
    made = 0
    for name in sorted(wanted):
        if name in shipped or name.startswith(REAL) or (out / name).exists():
            continue
        compile_stub(out / name, symbols[name])
        made += 1
        print(f"stub {name}: {sum(map(len, symbols[name].values()))} symbols")
    if not made:
        print("torch is linked with no CUDA library: nothing to replace", file=sys.stderr)
    check = "import torch; assert not torch.cuda.is_available(); print(torch.linalg.svd(torch.eye(2)))"
    return subprocess.run([str(site_packages.parents[2] / "bin" / "python"), "-c", check], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
