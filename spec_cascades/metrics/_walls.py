"""The three walls around a generated program, strongest first; imported by the script `_jail` alone.

"namespaces": process, mount, network and IPC namespaces, a root of our own, another user, no capabilities.
"landlock": the kernel's file rules and a filter against sockets and new processes, where those are refused.
"hooks": Python's audit events, everywhere else.
"""

import ctypes
import os
import struct
import sys

LINUX = sys.platform == "linux"
LIBC = ctypes.CDLL(None, use_errno=True)
SYSTEM = ["/usr", "/lib", "/lib64", "/bin", "/nix/store", "/etc/ld.so.cache", "/dev/zero", "/dev/random"]
READABLE = [*SYSTEM, "/dev/urandom", "/dev/null", sys.base_prefix, sys.base_exec_prefix]

# numbers of <linux/sched.h>, <sys/mount.h>, <sys/prctl.h>; system calls from 424 on are the same everywhere
NEWNS, NEWUTS, NEWIPC = 0x20000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 4096, 16384, 1 << 18, 2
PDEATHSIG, DUMPABLE, SECCOMP, SUBREAPER, NO_NEW_PRIVS = 1, 4, 22, 36, 38
MOUNT_SETATTR, LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 442, 444, 445, 446
IO_URING_SETUP, CLONE3, ENOSYS = 425, 435, 38
CLONE_THREAD, READ_ONLY = 0x10000, 1
CALLS = {  # architecture; numbers of socket, clone, the calls that only start processes, shmget and msgget
    "x86_64": (0xC000003E, 41, 56, (57, 58), (29, 68)),
    "aarch64": (0xC00000B7, 198, 220, (), (194, 186)),
}.get(os.uname().machine)


def _call(name, *arguments):
    """A function of the C library; OSError names it when it fails."""
    result = getattr(LIBC, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _syscall(*arguments):
    return _call("syscall", *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))


def prctl(option, value):
    if LINUX:
        _call("prctl", option, *(ctypes.c_ulong(v) for v in (value, 0, 0, 0)))


# --- level "namespaces" -------------------------------------------------------------------------------------


def split_pids():
    """The next child is the first process of a pid namespace; without root, a user namespace allows that."""
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", NEWPID if uid == 0 else NEWPID | NEWUSER)
    maps = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
    for name, text in maps.items() if uid else ():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _mount(source, target, kind, flags, data=None):
    encode = lambda text: None if text is None else os.fsencode(text)
    _call("mount", encode(source), encode(target), encode(kind), ctypes.c_ulong(flags), encode(data))


def build_root(root, file_mb):
    """A file system of our own: Python and the system's libraries read-only, an empty /tmp, no /proc."""
    _call("unshare", NEWNS | NEWNET | NEWIPC | NEWUTS)
    _mount(None, "/", None, MS_REC | MS_PRIVATE)  # else the mounts below would spread to the machine
    _mount("tmpfs", root, "tmpfs", 0, "size=1m,mode=755")
    os.mkdir(f"{root}/tmp")
    os.mkdir(f"{root}/dev")
    os.symlink("/tmp", f"{root}/dev/shm")
    _mount("tmpfs", f"{root}/tmp", "tmpfs", 0, f"size={file_mb}m,nr_inodes=4096,mode=1777")
    for path in READABLE:  # which may lie in /tmp
        _show(path, root)
    for folder, recursive, on, off in ((root, 0x8000, READ_ONLY, 0), (f"{root}/tmp", 0, 0, READ_ONLY)):
        change = struct.pack("QQQQ", on, off, 0, 0)
        _syscall(MOUNT_SETATTR, -100, os.fsencode(folder), recursive, change, len(change))
    os.chdir(root)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", MNT_DETACH)
    os.chdir("/tmp")


def _show(path, root):
    target = root + path
    if os.path.lexists(target) or not os.path.exists(path):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path) and path in SYSTEM:
        return os.symlink(os.readlink(path), target)
    if os.path.isdir(path):
        os.mkdir(target)
    else:
        open(target, "w").close()
    _mount(path, target, None, MS_BIND | MS_REC)


def _shed_privileges(uid):
    """A user nobody else has (as root), no capabilities, and no way to new ones."""
    if os.geteuid() == 0:  # no process limit binds root
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    LIBC.unshare(NEWUSER)  # without a map, the kernel refuses further ones within; may itself be refused
    _call("capset", struct.pack("II", 0x20080522, 0), struct.pack("6I", *[0] * 6))


# --- level "landlock" ---------------------------------------------------------------------------------------


def landlock_version():
    try:
        return _syscall(LANDLOCK_CREATE, None, 0, 1) if LINUX else 0
    except OSError:
        return 0


def _landlock(root, version):
    """Files: all in root, reading in READABLE. TCP and signals: nothing, where the version covers them."""
    if not version or not CALLS:
        raise OSError(f"not on {sys.platform}, {os.uname().machine}, kernel {os.uname().release}")
    bits = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    everything, look, file_only = (1 << bits) - 1, 0b1101, 0b1100000000000111
    parts = [everything] + [3] * (version >= 4) + [3] * (version >= 6)
    attributes = struct.pack(f"{len(parts)}Q", *parts)
    rules = _syscall(LANDLOCK_CREATE, attributes, len(attributes), 0)
    shown = [(path, look) for path in READABLE if os.path.exists(path)]
    for path, rights in [*shown, (root, everything), ("/dev/null", 7)]:
        fd = os.open(path, os.O_PATH)
        rights &= everything if os.path.isdir(path) else everything & file_only
        _syscall(LANDLOCK_ADD, rules, 1, struct.pack("=Qi", rights, fd), 0)
        os.close(fd)
    prctl(NO_NEW_PRIVS, 1)
    _syscall(LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)


def _filter_calls():
    """No socket, no io_uring, no new process.

    The system counts processes by user, and root's not at all. The user stays the same here, so that the only
    number that can be enforced is none. Threads are left: clone with CLONE_THREAD, used where clone3 is not.
    """
    _, socket, clone, forks, shared = CALLS
    code = [line for number in (socket, IO_URING_SETUP, *forks, *shared) for line in _refuse(number)]
    code += [*_refuse(CLONE3, ENOSYS), (EQUAL, 0, 3, clone), (LOAD, 0, 0, 16)]
    _install([*code, (HAS, 1, 0, CLONE_THREAD), (GIVE, 0, 0, DENY | 1)])


def _filter_shared():
    """No shared memory and no message queue of System V: they are no process's, so no limit counts them."""
    if CALLS:
        _install([line for number in CALLS[-1] for line in _refuse(number)])


LOAD, EQUAL, AT_LEAST, HAS, GIVE, ALLOW, DENY = 0x20, 0x15, 0x35, 0x45, 0x06, 0x7FFF0000, 0x50000


def _refuse(number, error=1):
    return [(EQUAL, 0, 1, number), (GIVE, 0, 0, DENY | error)]


def _install(rules):
    """A system-call filter: the rules on the call's number, and nothing of a foreign architecture."""
    code = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, CALLS[0]), (GIVE, 0, 0, DENY | 1), (LOAD, 0, 0, 0)]
    code += [(AT_LEAST, 0, 1, 0x40000000), (GIVE, 0, 0, DENY | 1), *rules, (GIVE, 0, 0, ALLOW)]
    body = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program = ctypes.create_string_buffer(struct.pack("HP", len(code), ctypes.addressof(body)))
    prctl(NO_NEW_PRIVS, 1)
    _call("prctl", SECCOMP, ctypes.c_ulong(2), program, ctypes.c_ulong(0), ctypes.c_ulong(0))


# --- level "hooks" ------------------------------------------------------------------------------------------

DENIED = (
    "socket.",
    "ctypes.",
    "subprocess.",
    "os.system",
    "os.fork",
    "os.exec",
    "os.spawn",
    "os.posix_spawn",
    "pty.",
)
CHANGES = "remove rename rmdir mkdir link symlink truncate chmod chown utime setxattr".split()
FILES = ("open", *(f"os.{name}" for name in CHANGES))
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _hook(root):
    """Python's own audit events; a program that leaves the interpreter's paths is not held by them."""
    inside, resolve, isdir, me = os.path.realpath(root) + os.sep, os.path.realpath, os.path.isdir, os.getpid

    def outside(path):
        return isinstance(path, str | bytes) and not (resolve(os.fsdecode(path)) + os.sep).startswith(inside)

    def hook(event, arguments):
        if event.startswith(DENIED) or (event in ("os.kill", "os.killpg") and arguments[0] != me()):
            raise PermissionError(f"{event} is not allowed in the sandbox")
        if event == "import" and arguments[0] in ("_ctypes", "_posixsubprocess"):
            raise PermissionError(f"importing {arguments[0]} is not allowed in the sandbox")
        if event not in FILES:
            return
        path = arguments[0]
        if event == "open" and not (arguments[2] or 0) & WRITING:
            if not str(path).startswith("/proc") and not (outside(path) and isdir(path)):
                return  # a folder's descriptor would lead past the paths that are looked at here
        if any(map(outside, arguments[: 1 if event == "open" else 2])):
            raise PermissionError(f"{event} outside the sandbox's folder is not allowed")

    for name in ("ctypes", "_ctypes", "_posixsubprocess"):
        sys.modules.pop(name, None)
    sys.addaudithook(hook)


# --- all three ----------------------------------------------------------------------------------------------


def raise_wall(level, root, uid):
    """Shuts this process in, for good; `uid` is the user it becomes where root runs it in namespaces."""
    if level == "namespaces":
        _shed_privileges(uid)
        _filter_shared()
    if level == "landlock":
        _landlock(root, landlock_version())
        _filter_calls()
    if level == "hooks":
        _hook(root)
    prctl(NO_NEW_PRIVS, 1)


NO_CHILDREN = "Programs cannot start processes of their own here: one that has to fails."
HOOKED = (
    "Files, processes, the network and signals are guarded by Python's audit hooks alone: native code and "
    "introspection get past them.",
    "The files of this user can be read.",
)
MODES = "Modes and times of this user's files can be changed: Landlock does not cover them."
SIGNALS = "Other processes of this user can be signalled, and so ended, before Linux 6.12."
MEMORY = "The memory limit may not hold on this system."
SHARED = "Shared memory of System V is not counted against the memory limit on this processor."


def missing(level):
    """Sentences: what a level leaves open, or takes from programs, on this machine."""
    if level == "namespaces":
        return [SHARED] * (not CALLS)
    if level == "hooks":
        return [NO_CHILDREN, *HOOKED] + [MEMORY] * (not LINUX)
    return [NO_CHILDREN, MODES] + [SIGNALS] * (landlock_version() < 6)
