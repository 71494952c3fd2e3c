"""Code that wants a reward that it has no right to, or does harm. Each of these is a zero, and evsys goes on."""

from pathlib import Path

import pytest

from evsys.types import Score
from evsys_verifiers_std import sandbox
from evsys_verifiers_std.code_tests import CodeTests

pytestmark = pytest.mark.skipif(
    sandbox.no_sandbox() is not None, reason=f"this machine makes no sandbox: {sandbox.no_sandbox()}"
)

CALLS = {"tests": [{"args": [20], "returns": 6765}, {"args": [1], "returns": 1}], "entry_point": "fib"}
ASSERTS = ["assert fib(20) == 6765", "def check_all():\n    assert fib(1) == 1 and fib(2) == 1\ncheck_all()"]
PROGRAM = [{"input": "20\n", "output": "6765\n"}]

FORGERIES = {
    "exits": "import os\nos._exit(0)",
    "exits when it is called": "import os\ndef fib(n):\n    os._exit(0)",
    "exits softly": "def fib(n):\n    raise SystemExit(0)",
    "prints": "print('passed\\n1.0\\n{\"done\": true}')\ndef fib(n):\n    print('{\"test\": 0, \"part\": 0, \"error\": null}')",
    "equals everything": (
        "class All:\n    def __eq__(self, other): return True\n    def __bool__(self): return True\n"
        "    def __hash__(self): return 0\ndef fib(n): return All()"
    ),
    "is an int that equals everything": (
        "class All(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\ndef fib(n): return All(3)"
    ),
    "patches Python": (
        "import builtins, sys, json\nbuiltins.AssertionError = type('Quiet', (Exception,), {})\n"
        "json.dumps = lambda *a, **k: '{\"value\": true}'\nbuiltins.repr = lambda x: '6765'\ndef fib(n): return None"
    ),
    "stands in for Python's own": (
        "def isinstance(a, b): return True\ndef all(x): return True\nclass AssertionError(Exception): pass\n"
        "def check_all(): pass\ndef fib(n): return 0"
    ),
    "looks through the frames": (
        "import sys\ndef fib(n):\n    frame = sys._getframe()\n    while frame:\n"
        "        for value in list(frame.f_locals.values()):\n"
        "            if isinstance(value, dict) and 'returns' in value: return value['returns']\n"
        "        frame = frame.f_back\n    raise ValueError"
    ),
    "looks through all objects": (
        "import gc\ndef fib(n):\n    for one in gc.get_objects():\n"
        "        if type(one) is dict and 'returns' in one: return one['returns']\n    return -1"
    ),
    "writes to every descriptor": (
        "import os\nfor n in range(3, 64):\n    try:\n"
        "        os.write(n, b'{\"test\": 0, \"part\": 0, \"error\": null}\\n{\"test\": 1, \"part\": 0, \"error\": null}\\n{\"done\": true}\\n')\n"
        "    except OSError: pass\ndef fib(n): return 0"
    ),
    "answers in advance with nonsense": (
        "import os\nfor n in range(3, 64):\n    try: os.write(n, b'{\"value\": {\"object\": 0}}\\n' * 9 + b'[[[')\n"
        "    except OSError: pass\ndef fib(n): return 0"
    ),
    "answers what nests without end": (
        "import os\nfor n in range(3, 64):\n    try: os.write(n, b'{\"value\": ' + b'[' * 60000 + b'\\n')\n"
        "    except OSError: pass\ndef fib(n): return 0"
    ),
    "raises what ends tests": "def fib(n):\n    raise KeyboardInterrupt",
    "raises what tests may skip by": "import unittest\ndef fib(n):\n    raise unittest.SkipTest('skip')",
    "recurses until it crashes": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef fib(n): return [fib(n)]"
    ),
    "returns what nests without end": "def fib(n):\n    a = []\n    a.append(a)\n    return a",
    "fails while it is told": "class E(Exception):\n    def __str__(self): raise E\ndef fib(n): raise E",
    "takes the tests' place": "import sys\nsys.modules['tests'] = sys\ndef test_fib(): pass\ndef check(c): pass\ndef fib(n): return 0",
    "reads other processes": (
        "import glob\ndef fib(n):\n    for path in glob.glob('/proc/*/cmdline'):\n        if b'6765' in open(path,'rb').read(): return 6765\n    return 0"
    ),
    "kills its parents": "import os, signal\nfor pid in (os.getppid(), 1, -1):\n    try: os.kill(pid, signal.SIGKILL)\n    except OSError: pass\ndef fib(n): return 0",
}  # fmt: skip


def judged(code: str, expected: object, **params: object) -> Score:
    said = CodeTests(timeout_seconds=4.0, **params).judged(f"```python\n{code}\n```", expected, {})
    assert isinstance(said, Score), said
    return said


@pytest.mark.parametrize("expected", [CALLS, ASSERTS], ids=["calls", "asserts"])
@pytest.mark.parametrize("attack", FORGERIES)
def test_code_can_not_write_its_own_verdict(attack, expected):
    assert judged(FORGERIES[attack], expected).value == 0.0


@pytest.mark.parametrize("attack", ["exits", "prints", "writes to every descriptor", "kills its parents"])
def test_a_program_can_not_write_its_own_verdict(attack):
    assert judged(FORGERIES[attack], PROGRAM).value == 0.0


def test_the_right_answer_with_a_wrong_exit_code_does_not_pass():
    assert judged("print(6765)", PROGRAM).value == 1.0
    assert judged("print(6765)\nraise SystemExit(3)", PROGRAM).value == 0.0


def attempt(code: str, **params: object) -> Score:
    """The score of code that tries something in a function: 1.0 where it came through and returned True."""
    tried = "\n    ".join(code.splitlines())
    return judged(f"def attempt():\n    {tried}\n    return True", ["assert attempt() is True"], **params)


def test_what_these_attacks_are_made_of_is_there():
    assert attempt("import ctypes, gc, glob, mmap, os, socket, subprocess, threading, unittest").value == 1.0
    assert attempt("import ctypes\nassert ctypes.CDLL(None).getpid() > 0").value == 1.0


def test_there_is_no_network():
    for code in (
        "import socket\nsocket.create_connection(('127.0.0.1', 22), 1)",
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))",
    ):
        assert attempt(code).value == 0.0


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.fork()",
        "import subprocess\nsubprocess.run(['/bin/true'], check=True)",
        "import os\nwhile True: os.fork()",
        "import ctypes\nc = ctypes.CDLL(None)\nassert c.syscall(57) >= 0",
        "import os\nos.memfd_create('x')",
    ],
)
def test_no_process_can_be_started(code):
    assert attempt(code).value == 0.0


@pytest.mark.parametrize(
    "code",
    [
        "x = bytearray(400 << 20)",
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "import mmap\nm = mmap.mmap(-1, 400 << 20)",
    ],
)
def test_memory_is_bounded(code):
    assert attempt(code, memory_mb=256).value == 0.0
    assert attempt("x = bytearray(50 << 20)", memory_mb=256).value == 1.0


def test_files_are_bounded_each_and_together():
    assert attempt("open('/tmp/a', 'wb').write(bytes(1 << 20))", file_mb=1).value == 1.0
    assert attempt("open('/tmp/a', 'wb').write(bytes(3 << 20))", file_mb=1).value == 0.0
    many = "for n in range(99): open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))"
    assert attempt(many, file_mb=1).value == 0.0


def test_files_of_this_machine_are_neither_written_nor_seen(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("s", encoding="utf-8")
    for code in (
        f"open({str(secret)!r}).read()",
        f"open({str(tmp_path / 'new')!r}, 'w').write('x')",
        "open('/etc/passwd').read()",
        "open('/usr/evsys', 'w')",
        "open('/new', 'w')",
        "open('/dev/new', 'w')",
        "open('/evsys/evsys_verifiers_std/code_sandbox/plain.py', 'a')",
        "import os\nos.listdir('/proc/1')",
        "import os\nos.listdir('/home')",
    ):
        assert attempt(code).value == 0.0, code
    assert list(tmp_path.iterdir()) == [secret]


def test_no_secret_of_the_environment_is_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_API_KEY", "sk-1")
    assert attempt("import os\nassert 'MY_API_KEY' in os.environ").value == 0.0


@pytest.mark.parametrize(
    "code",
    [
        "print('x' * (1 << 26))",
        "while True: print('x' * 4096)",
        "import os\nwhile True: os.write(2, b'x' * 4096)",
    ],
)
def test_output_is_bounded(code):
    assert judged(code, PROGRAM).value == 0.0


def test_a_value_that_is_too_large_is_an_error_of_its_test_alone():
    score = judged("def f(n):\n    return 'x' * n", ["assert f(9 << 20)", "assert True"])
    assert score.components == {"test_1": 0.0, "test_2": 1.0}


def test_nothing_that_was_left_running_outlives_its_test():
    code = (
        "import threading, time\ndef f():\n"
        "    threading.Thread(target=lambda: time.sleep(60)).start()\n    return 1"
    )
    assert judged(code, ["assert f() == 1"]).value == 1.0


@pytest.mark.parametrize(
    "code",
    [
        "class math:\n    isclose = staticmethod(lambda *a, **k: True)\ndef half(x):\n    return 'wrong'",
        "import types\nmath = types.SimpleNamespace(isclose=lambda *a, **k: True)\ndef half(x):\n    return 7",
    ],
)
def test_a_program_cant_replace_a_module_that_tests_use(code):
    score = CodeTests().judged(code, ["assert math.isclose(half(3), 1.5)"], {})
    assert score.value == 0.0


def test_tests_can_use_modules_of_python_without_an_import():
    code = "def half(x):\n    return x / 2\n\nclass Stack:\n    of = staticmethod(list)\n\ndef bisect(x):\n    return x"
    tests = [
        "assert math.isclose(half(3), 1.5)",
        "assert Stack.of('ab') == ['a', 'b']",
        "assert bisect(3) == 3",
    ]
    assert CodeTests().judged(code, tests, {}).value == 1.0


def test_a_test_that_uses_a_library_without_an_import_is_refused():
    with pytest.raises(ValueError, match=r"test 2 uses np without importing it; import it in `setup`"):
        CodeTests().check(["assert f() == 1", "assert np.allclose(f(), 1)"])
    CodeTests(setup="import numpy as np").check(["assert np.allclose(f(), 1)"])
    CodeTests().check(["import numpy as np\nassert np.allclose(f(), 1)"])
