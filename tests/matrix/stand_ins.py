"""Stand-ins for the libraries of CUDA: torch's wheels for Linux need gigabytes of them even where there is no GPU.

Every function in them says that there is no device, so that torch computes on the CPU. Only for tests of versions.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

NO_DEVICE = 100
"""``cudaErrorNoDevice``."""
OF_OTHERS = re.compile(r"lib(cu\w*|nv\w*|nccl)\.so\.\d+")
OURS = re.compile(r"(cu|nccl|nvrtc|nvshmem|nvJitLink|__cuda)\w*")
TEXTS = ("GetErrorString", "GetErrorName")


def add_stand_ins(folder: Path) -> list[str]:
    """Put a library for each missing one into the folder of torch's libraries; return their names."""
    libraries = sorted(folder.glob("*.so"))
    needed = {name for path in libraries for name in words(["readelf", "-d", str(path)], r"NEEDED.*\[(.+)\]")}
    missing = sorted(name for name in needed if OF_OTHERS.fullmatch(name) and not (folder / name).exists())
    asked = {
        name
        for path in libraries
        for name in words(["nm", "-D", "--undefined-only", str(path)], r" U ([^\s@]+)")
        if OURS.fullmatch(name)
    }
    source = "".join(
        f'const char *{name}(void) {{ return "no CUDA"; }}\n'
        if name.endswith(TEXTS)
        else f"int {name}(void) {{ return {NO_DEVICE}; }}\n"
        for name in sorted(asked)
    )
    for name in missing:
        # All functions are in each: whichever is loaded first answers.
        script = folder / f"{name}.versions"
        script.write_text("".join(f"{version} {{ global: *; }};\n" for version in sorted(versions(libraries, name))))
        options = [f"-Wl,-soname,{name}", *([f"-Wl,--version-script,{script}"] if script.stat().st_size else [])]
        command = ["cc", "-shared", "-fPIC", "-w", *options, "-x", "c", "-", "-o", str(folder / name)]
        subprocess.run(command, input=source, text=True, check=True)
        script.unlink()
    return missing


def versions(libraries: list[Path], name: str) -> set[str]:
    """Return the versions of its functions that a library has to have."""
    found: set[str] = set()
    for path in libraries:
        for file in words(["readelf", "--version-info", "--wide", str(path)], r"(File: .+(?:\n +0x\w+: +Name: .+)*)"):
            if f"File: {name} " in file:
                found |= set(re.findall(r"Name: (\S+)", file))
    return found


def words(command: list[str], pattern: str) -> list[str]:
    """Return what a pattern finds in the lines that a command prints."""
    return re.findall(pattern, subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    print(*add_stand_ins(Path(sys.argv[1])), sep="\n")
