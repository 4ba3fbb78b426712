"""The supervisor of one generated program: a script that `sandbox` starts, on the standard library alone.

It reads a request (JSON) on stdin, forks the program behind one of three walls, watches it, ends every
process that is left, and writes what happened (JSON) to stdout:

    caller -> supervisor -> first process of a pid namespace -> the program        (level "namespaces")
    caller -> supervisor -> the program                                            ("landlock", "hooks")

Nothing secret is in the program's memory before it ends: the token that vouches for its end is drawn after
the fork and read from a pipe by the lines behind the program, in `_play`.
"""

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
import types

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
import _walls

del sys.path[-1]

TICK = 0.02  # seconds between two looks at the process tree
ANY, EXIT, MEMORY, LEAVE = (
    BaseException,
    SystemExit,
    MemoryError,
    os._exit,
)  # a program may replace the originals


# --- the program --------------------------------------------------------------------------------------------


def _first_process(request, ends, ready):
    """Process 1 of the namespace: passes on how the program ended; with it the kernel ends all the others."""
    _walls.prctl(_walls.PDEATHSIG, signal.SIGKILL)
    _walls.build_root(request.root, request.file_mb)
    program = os.fork()
    if program == 0:
        _be_program(request, ends, ready)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 hears only the signals that it handles
    os.closerange(0, 256)
    pid = status = None
    while pid != program:
        pid, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _be_program(request, ends, ready):
    """Turns this process into the program's; never returns."""
    null = os.open("/dev/null", os.O_RDWR)
    for number, fd in enumerate((null, ends.output, ends.output)):
        os.dup2(fd, number)
    keep = sorted({ends.token, ends.verdict, ready})
    for low, high in zip([2, *keep], [*keep, 256], strict=True):
        os.closerange(low + 1, high)
    if request.level != "namespaces":
        _walls.prctl(_walls.PDEATHSIG, signal.SIGKILL)
        os.setsid()
        os.chdir(request.root)
    os.environ.clear()
    sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
    _limit(request)
    _walls.raise_wall(request.level, request.root, request.uid)
    for name in ("_walls", "ctypes", "_ctypes"):  # nothing of ours to import by chance
        sys.modules.pop(name, None)
    os.close(ready)
    _play(request.parts, ends.token, ends.verdict)


def _limit(request):
    mb = 1 << 20
    bounds = {"CPU": request.cpu_seconds, "AS": request.memory_mb * mb, "FSIZE": request.file_mb * mb}
    bounds |= {"CORE": 0, "NOFILE": 256}
    if (
        request.level == "namespaces"
    ):  # elsewhere it would count all of this user's, and there are none to start
        bounds["NPROC"] = request.processes + 2 * bool(os.geteuid())  # ours count where the user is the same
    for name, bound in bounds.items():
        hard = bound + (name == "CPU")  # SIGXCPU first, SIGKILL a second later
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (bound, hard))
        except (ValueError, OSError):
            if _walls.LINUX:
                raise


def _play(parts, token, verdict):
    """Executes the parts one after the other in one fresh module, then vouches for their end with the token.

    The functions needed afterwards are taken first, so that a program that replaces them changes nothing.
    """
    read, write, pid, me, out = os.read, os.write, os.getpid, os.getpid(), sys.stdout
    module = types.ModuleType("program")
    sys.modules["program"] = sys.modules["__main__"] = module
    sys.argv[:] = ["program"]
    said = None
    try:
        codes = [compile(part, "<program>", "exec", dont_inherit=True) for part in parts]
        for code in codes:
            exec(code, module.__dict__)
    except MEMORY:
        said = b"memory"
    except EXIT:
        said = b"exited"
    except ANY as error:
        said = b"failed"
        _show(_trace, error)
    _show(out.flush)
    if pid() == me:  # not in a fork that ran on to here
        write(verdict, said or b"passed " + read(token, 16))
    LEAVE(0)


def _trace(error):
    lines = traceback.format_exception(
        type(error), error, error.__traceback__.tb_next
    )  # without our own frame
    os.write(2, "".join(lines)[-4000:].encode(errors="backslashreplace"))


def _show(step, *arguments):
    try:
        step(*arguments)
    except ANY:  # raised by the program's own objects; the verdict stands
        pass


# --- the supervisor -----------------------------------------------------------------------------------------


def _tree(root):
    """Process ids of the descendants of `root`, zombies included, from /proc; empty where there is none."""
    found, todo = set(), [root]
    while todo:
        folder = f"/proc/{todo.pop()}/task"
        try:
            texts = [_read(f"{folder}/{thread}/children") for thread in os.listdir(folder)]
        except OSError:
            continue
        new = {int(pid) for text in texts for pid in text.split()} - found
        found |= new
        todo += new
    return found


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _private_mb(pids):
    """Memory of these processes that is no file's and not shared, in MiB."""
    rows = (_read(f"/proc/{pid}/statm").split() for pid in pids)
    return sum(int(row[1]) - int(row[2]) for row in rows if row) * resource.getpagesize() / (1 << 20)


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


class Watch:
    """Looks after one running program: its output, its end, its bounds."""

    def __init__(self, request, first, output):
        self.request, self.first, self.output = request, first, output
        self.start, self.looked, self.status, self.broken = time.monotonic(), 0.0, None, ""
        self.head, self.tail, self.dropped = b"", b"", 0
        os.set_blocking(output, False)

    def run(self):
        while self.status is None and not self.broken:
            if select.select([self.output] if self.output else [], [], [], TICK if self.output else TICK / 4)[
                0
            ]:
                self.drain()
            self.reap()
            now = time.monotonic()
            if now - self.start > self.request.wall_seconds:
                self.broken = "timeout"
            elif now - self.looked > TICK:
                self.looked = now
                self.broken = self.excess()
        self.seconds = time.monotonic() - self.start

    def drain(self):
        """One read: the first and the last bytes are kept, so that a flood costs no memory."""
        try:
            data = os.read(self.output, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            os.close(self.output)
            self.output = None
            return False
        half = self.request.output_kb * 512
        room = half - len(self.head)
        self.head, rest = self.head + data[:room], self.tail + data[room:]
        self.tail = rest[-half:]
        self.dropped += len(rest) - len(self.tail)
        return True

    def reap(self):
        """Takes the ended children, also those that were handed to us."""
        pid = 1
        while pid:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == self.first:
                self.status = status
        return True

    def excess(self):
        pids = _tree(os.getpid()) - ({self.first} if self.request.level == "namespaces" else set())
        if len(pids) > self.request.processes:
            return "processes"
        return "memory" if _private_mb(pids) > self.request.memory_mb else ""

    def sweep(self):
        """Ends all that is left; what breeds while we kill is met again on the next round."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            for pid in _tree(os.getpid()) | ({self.first} if self.status is None else set()):
                _kill(pid)
            if not self.reap():
                break
            time.sleep(0.001)
        while self.output and self.drain():
            pass

    def text(self):
        gap = f"\n[... {self.dropped} bytes left out ...]\n".encode() if self.dropped else b""
        return (self.head + gap + self.tail).decode(errors="replace")


def _reason(watch, said, secret):
    if watch.broken:
        return watch.broken
    code = os.waitstatus_to_exitcode(watch.status)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code == 0 and said == b"passed " + secret:
        return "passed"
    if code in (-signal.SIGXCPU, 128 + signal.SIGXCPU) or (
        code in (-9, 137) and used.ru_utime + used.ru_stime >= watch.request.cpu_seconds
    ):
        return "timeout"
    return said.decode() if said in (b"failed", b"memory") else "exited"


def _supervise(request):
    """One program, from its fork to the last of its processes; the result, or `error` where no wall held."""
    _walls.prctl(_walls.PDEATHSIG, signal.SIGKILL)  # we end with the caller
    _walls.prctl(_walls.SUBREAPER, 1)  # children that leave their parents come to us
    if request.level == "namespaces":
        _walls.split_pids()
    output, token, verdict, ready = (os.pipe() for _ in range(4))
    first = os.fork()
    if first == 0:
        _child(request, types.SimpleNamespace(output=output[1], token=token[0], verdict=verdict[1]), ready[1])
    for fd in (output[1], token[0], verdict[1], ready[1]):
        os.close(fd)
    with open(ready[0], "rb") as file:
        error = file.read().decode()
    watch = Watch(request, first, output[0])
    if error:
        watch.sweep()
        return {"error": error}
    _walls.prctl(_walls.DUMPABLE, 0)  # closes our memory to processes of the same user
    secret = os.urandom(16)
    _send(token[1], secret)
    watch.run()
    watch.sweep()
    os.set_blocking(verdict[0], False)
    return {
        "reason": _reason(watch, _receive(verdict[0]), secret),
        "seconds": watch.seconds,
        "output": watch.text(),
        "missing": _walls.missing(request.level),
    }


def _child(request, ends, ready):
    """What follows the fork, with every error told through `ready`; never returns."""
    try:
        if request.level == "namespaces":
            _first_process(request, ends, ready)
        _be_program(request, ends, ready)
    except ANY as error:
        os.write(ready, f"{error or type(error).__name__}".encode())
    finally:
        LEAVE(1)


def _send(fd, data):
    try:
        os.write(fd, data)
    except BrokenPipeError:  # the program has closed its end, and cannot pass
        pass


def _receive(fd):
    try:
        return os.read(fd, 64)
    except BlockingIOError:
        return b""


def main():
    os.umask(0o022)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    request = types.SimpleNamespace(**json.load(sys.stdin), uid=0x60000000 | os.getpid())
    try:
        result = _supervise(request)
    except OSError as error:
        result = {"error": str(error)}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
