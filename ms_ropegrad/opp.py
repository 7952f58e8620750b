# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The vendor package (OPP directory) of the Ascend operators: where it is, install and remove it.

Needs only Python: no mindspore, no NumPy, no CANN. Building the package is CANN's work (CMakeLists.txt).
"""
import contextlib
import ctypes
import errno
import os
import platform
import re
import shutil
import tempfile
from pathlib import Path

from . import spec
from .opp_verify import STAMP, elf, verify

_HERE = Path(__file__).resolve().parent
_VARIABLE = "ASCEND_CUSTOM_OPP_PATH"
_FIX = "build it (bash scripts/build_and_install.sh), or install a wheel that holds it; then run: python -m ms_ropegrad info"


class OppError(RuntimeError):
    """What is wrong with the vendor package or its place, and the fix."""


# ---- Where it is ----

_PRIORITY = re.compile(rb"^(?:\xef\xbb\xbf)?[ \t]*load_priority[ \t]*=(.*)\n?", re.M)


def priority(vendors):
    """The vendors named by config.ini, first to last."""
    with contextlib.suppress(OSError):
        lines = _PRIORITY.findall((Path(vendors) / "config.ini").read_bytes())
        names = (os.fsdecode(name.strip()) for line in lines for name in line.split(b","))
        return list(dict.fromkeys(filter(None, names)))
    return []


def _custom():
    return [p for p in os.environ.get(_VARIABLE, "").split(":") if p]


def search():
    """{vendor directory: who names it}, in the order in which MindSpore and CANN look."""
    places = {p: _VARIABLE for p in _custom()}
    vendors = Path(os.environ.get("ASCEND_OPP_PATH") or "/nowhere") / "vendors"
    for name in priority(vendors):
        places.setdefault(str(vendors / name), str(vendors / "config.ini"))
    return {Path(p): source for p, source in places.items()}


def is_ours(directory):
    return Path(directory).name == spec.VENDOR or (Path(directory) / STAMP).exists()


def _exports(place):
    with contextlib.suppress(OSError, ValueError):
        return elf(place / "op_api/lib/libcust_opapi.so")[1]
    return set()


def find(op):
    """(the vendor directory that is asked for op, who names it, what was searched before)."""
    searched = []
    for place, source in search().items():
        if is_ours(place) and place.is_dir() or f"aclnn{op}" in _exports(place):
            return place, source, searched
        searched.append(f"{place} ({source}): " + (f"has no aclnn{op}" if place.is_dir() else "not a directory"))
    config = os.path.join(os.environ.get("ASCEND_OPP_PATH") or "$ASCEND_OPP_PATH", "vendors/config.ini")
    return None, None, searched or [f"ASCEND_CUSTOM_OPP_PATH and load_priority of {config} name no directory"]


def require(op):
    """Refuse, before anything is built for the device, a vendor package that cannot run op here: OppError says why, and the fix."""
    home = os.environ.get("ASCEND_OPP_PATH")
    if not home:
        raise OppError(f"For '{op}', ASCEND_OPP_PATH is not set: source set_env.sh of CANN before Python starts.")
    if "opp" in os.path.dirname(home.rstrip("/")):
        raise OppError(f"For '{op}', MindSpore cuts ASCEND_OPP_PATH={home} at its first 'opp': install CANN where no earlier part has it.")
    place, source, searched = find(op)
    if place is None:
        raise OppError(f"For '{op}', no vendor package has aclnn{op}. Searched: {'; '.join(searched)}. Fix: {_FIX}.")
    if not is_ours(place):
        raise OppError(f"For '{op}', {place} ({source}) is another vendor's and has an aclnn{op} too. Fix: name {spec.VENDOR} before it.")
    problems = verify(place, socs=list(filter(None, [soc()])), here=True)
    if problems:
        more = f" (and {len(problems) - 1} more: python -m ms_ropegrad verify-opp {place})" if problems[1:] else ""
        raise OppError(f"For '{op}', the vendor package {place} ({source}) cannot be used: {problems[0]}{more}. Fix: {_FIX}.")
    if source == _VARIABLE and _too_late(place):
        raise OppError(f"For '{op}', {place} ({source}) was named too late: MindSpore loads custom libraries once, at the first operator. "
                       f"Fix: set {_VARIABLE} before Python starts, or import ms_ropegrad before the first operator if a wheel holds it.")


def state(device):
    """What `info` says: the directory, who names it, what was searched, and the problems, on Ascend with those of this process."""
    place, source, searched = find(next(iter(spec.OPS)))
    problems = verify(place) if place else []
    if device == "Ascend":
        try:
            for op in spec.OPS:
                require(op)
        except OppError as e:
            problems = [str(e)]
    return {"directory": place and str(place), "named_by": source, "searched": searched, "problems": problems}


def soc():
    """The SoC of this process's NPU in CANN's words, such as ascend910b."""
    from mindspore._c_expression import MSContext
    return MSContext.get_instance().get_ascend_soc_version()


def _too_late(place):
    """Named by this process only, whose MindSpore has loaded CANN's operators (libopapi.so, after all custom libraries), but not ours."""
    at_start = re.search(rb"(?:^|\0)ASCEND_CUSTOM_OPP_PATH=([^\0]*)", Path("/proc/self/environ").read_bytes())
    if at_start and str(place) in map(str, map(Path, os.fsdecode(at_start[1]).split(":"))):
        return False
    try:
        ctypes.CDLL(str(place / "op_api/lib/libcust_opapi.so"), mode=os.RTLD_NOLOAD)
        return False
    except OSError:
        return b"/libopapi.so" in Path("/proc/self/maps").read_bytes()


def use_bundled():
    """At import: put the vendor package of this wheel in front of ASCEND_CUSTOM_OPP_PATH, if it is for this machine and none is named."""
    place = _HERE / "vendors" / spec.VENDOR
    with contextlib.suppress(OSError, ValueError):
        if elf(place / "op_api/lib/libcust_opapi.so")[0] == platform.machine() and not any(map(is_ours, _custom())):
            os.environ[_VARIABLE] = ":".join([str(place), *_custom()])


# ---- Install and remove: staged beside the target, then renamed ----

_SET_ENV = """#!/bin/bash
_ms_ropegrad="$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]:-$0}")/.." && pwd)"
export ASCEND_CUSTOM_OPP_PATH="$_ms_ropegrad${ASCEND_CUSTOM_OPP_PATH:+:$ASCEND_CUSTOM_OPP_PATH}"
export LD_LIBRARY_PATH="$_ms_ropegrad/op_api/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
unset _ms_ropegrad
"""


def install(source, path=None, vendor=spec.VENDOR, **checks):
    """Install or replace the vendor directory: in path/vendors, or else in $ASCEND_OPP_PATH/vendors, first in its load_priority.

    Until the one rename the earlier version is in place and after it the new one, however the call ends. Returns the directory.
    """
    with _vendors(path, vendor, source) as vendors:
        target = _replaceable(vendors / vendor)
        stage = Path(tempfile.mkdtemp(prefix=f".{vendor}.", dir=vendors))
        try:
            new = stage / vendor
            shutil.copytree(source, new, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
            if path is not None:
                (new / "bin").mkdir(exist_ok=True)
                (new / "bin/set_env.bash").write_text(_SET_ENV)
            for p in (new, *new.rglob("*")):
                if not p.is_symlink():
                    p.chmod(p.stat().st_mode & 0o755 | (0o755 if p.is_dir() else 0o644))
            problems = verify(new, **checks)
            if problems:
                raise OppError(f"{source} is not installed: " + "; ".join(problems))
            undo = _swap(new, target)
            try:
                if path is None:
                    _set_priority(vendors, lambda names: [vendor] + [n for n in names if n != vendor])
            except BaseException:
                undo()
                raise
        finally:
            _remove(stage)
    return target


def uninstall(path=None, vendor=spec.VENDOR):
    """Remove what :func:`install` put there, from load_priority too. Returns the directory."""
    with _vendors(path, vendor) as vendors:
        target = _replaceable(vendors / vendor)
        named = vendor in priority(vendors)
        if not named and not os.path.lexists(target):
            raise OppError(f"{target} is not there: nothing to uninstall")
        away = Path(tempfile.mkdtemp(prefix=f".{vendor}.", dir=vendors))
        try:
            if named:
                _set_priority(vendors, lambda names: [n for n in names if n != vendor])
            if os.path.lexists(target):
                _unlock(target)
                target.rename(away / vendor)
        finally:
            _remove(away)
    return target


def _replaceable(target):
    """A vendors/ms_ropegrad may be anything, such as a clone of our repository."""
    if target.is_dir() and not target.is_symlink() and any(target.iterdir()) and not any((target / n).exists() for n in (STAMP, "version.info")):
        raise OppError(f"{target} is no vendor package (it has no version.info): move or remove it yourself")
    return target


@contextlib.contextmanager
def _vendors(path, vendor, source=None):
    """The directory of all vendors, made if there is a source, for one installation at a time, and without what killed ones left."""
    home = path if path is not None else os.environ.get("ASCEND_OPP_PATH")
    if not home:
        raise OppError("ASCEND_OPP_PATH is not set: source set_env.sh of CANN, or give a directory (--path)")
    vendors = Path(os.path.realpath(home) if ".." in Path(home).parts else home).absolute() / "vendors"
    if ":" in str(vendors):
        raise OppError(f"{vendors} has a colon, which ends a path in {_VARIABLE}")
    try:
        if source is not None:
            if not Path(source).is_dir():
                raise OppError(f"{source} is not a directory: give the vendor directory itself")
            if os.path.join(os.path.realpath(vendors), "").startswith(os.path.join(os.path.realpath(source), "")):
                raise OppError(f"{vendors} lies in {source}, which it shall copy: choose another directory")
        lock = _lock(vendors, source is not None)
        try:
            for left in vendors.glob(f".{vendor}.*"):
                if (left / "earlier").exists() and not os.path.lexists(vendors / vendor):
                    (left / "earlier").rename(vendors / vendor)
                _remove(left)
            yield vendors
        finally:
            os.close(lock)
            if path is not None:
                with contextlib.suppress(OSError):
                    vendors.rmdir()  # when it is empty
    except shutil.Error as e:  # of copytree, one for each file
        raise OppError(f"{vendors} is unchanged: {e.args[0][0][2]}") from e
    except OSError as e:
        raise OppError(f"{vendors} is unchanged: " + (f"{e.strerror}: {e.filename}" if e.filename else str(e))) from e


def _lock(vendors, make):
    """The directory of all vendors, opened, when nobody else installs into it."""
    import fcntl  # Linux alone has CANN, but importing this module must work anywhere
    while True:
        if make and not vendors.is_dir():
            vendors.mkdir(parents=True, exist_ok=True)
            vendors.chmod(0o755)  # whatever the umask: all users of this CANN read it
        if not make and not vendors.is_dir():
            raise OppError(f"{vendors} is not there: nothing to uninstall")
        with contextlib.suppress(FileNotFoundError):  # removed by whom we waited for
            lock = os.open(vendors, os.O_RDONLY)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(lock), os.stat(vendors)):
                return lock
            os.close(lock)


def _replaceable(target):
    """A directory of this name may be anything, such as a clone of our repository."""
    if target.is_dir() and not target.is_symlink() and any(target.iterdir()) and not any((target / n).exists() for n in (STAMP, "version.info")):
        raise OppError(f"{target} is no vendor package (it has no version.info): move or remove it yourself")
    return target


def _swap(new, target):
    """Put new at target at once, and what was there at new. Returns the function that undoes it."""
    if not os.path.lexists(target):
        new.rename(target)
        return lambda: target.rename(new)
    _unlock(target)
    try:
        _exchange(new, target)
        return lambda: _exchange(new, target)
    except OSError as e:
        if e.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
    earlier = new.parent / "earlier"  # a file system without exchange: two renames; _vendors repairs a call killed in between
    target.rename(earlier)
    try:
        new.rename(target)
    except BaseException:
        earlier.rename(target)
        raise
    return lambda: (target.rename(new), earlier.rename(target))


def _exchange(a, b):
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if renameat2(-100, os.fsencode(a), -100, os.fsencode(b), 2):  # AT_FDCWD, RENAME_EXCHANGE
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(b))


def _set_priority(vendors, change):
    """In the first line, which alone CANN and MindSpore read; the others stay."""
    file = Path(os.path.realpath(vendors / "config.ini"))
    before, names = file.read_bytes() if file.exists() else b"", change(priority(vendors))
    after = os.fsencode(f"load_priority={','.join(names)}\n" * bool(names)) + _PRIORITY.sub(b"", before)
    if not after.strip():
        return file.unlink()
    new = file.with_name(f".{spec.VENDOR}.config.ini")  # the same one after a killed call
    try:
        new.write_bytes(after)
        new.chmod(file.stat().st_mode & 0o777 if before else 0o644)
        with contextlib.suppress(OSError):
            before and os.chown(new, file.stat().st_uid, file.stat().st_gid)
        os.replace(new, file)
    finally:
        new.unlink(missing_ok=True)


def _unlock(directory):
    """CANN's installer leaves directories that their owner can neither move nor empty."""
    if not os.path.islink(directory):
        with contextlib.suppress(PermissionError):  # not the owner: what follows will say it
            os.chmod(directory, os.stat(directory).st_mode & 0o777 | 0o700)


def _remove(path):
    if path.is_symlink() or path.is_file():
        return path.unlink()
    for directory, _, _ in os.walk(path):
        _unlock(directory)
    shutil.rmtree(path)
