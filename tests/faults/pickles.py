"""Pickles written by hand: what they would call, and files that look like checkpoints around them."""

from __future__ import annotations

import io
import marshal
import pickle
import random
import struct
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Global:
    """Something by the name of its module and its own."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """What a function returns for these arguments."""

    function: object
    arguments: object


@dataclass(frozen=True)
class New:
    """A new object of a class."""

    cls: object
    arguments: object


@dataclass(frozen=True)
class Build:
    """A thing after its ``__setstate__`` or the update of its ``__dict__``."""

    thing: object
    state: object


@dataclass(frozen=True)
class Persistent:
    """What whoever unpickles makes of this id."""

    id: object


@dataclass(frozen=True)
class Raw:
    """Operations as they are."""

    operations: bytes


def pickled(value: object, protocol: int = 2) -> bytes:
    return b"\x80" + bytes([protocol]) + operations(value) + b"."


def operations(value: object) -> bytes:
    """Return the operations that leave a value on the stack."""
    match value:
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int() if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        case int():
            data = pickle.encode_long(value)
            return b"\x8a" + bytes([len(data)]) + data
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            data = value.encode("utf-8", "surrogatepass")
            return b"X" + struct.pack("<I", len(data)) + data
        case bytes():
            return operations(Call(Global("_codecs", "encode"), (value.decode("latin1"), "latin1")))
        case tuple():
            return b"(" + b"".join(map(operations, value)) + b"t"
        case list():
            return b"](" + b"".join(map(operations, value)) + b"e"
        case dict():
            return b"}(" + b"".join(operations(key) + operations(item) for key, item in value.items()) + b"u"
        case Global(module, name):
            return b"c" + module.encode() + b"\n" + name.encode() + b"\n"
        case Call(function, arguments):
            return operations(function) + operations(arguments) + b"R"
        case New(cls, arguments):
            return operations(cls) + operations(arguments) + b"\x81"
        case Build(thing, state):
            return operations(thing) + operations(state) + b"b"
        case Persistent(id):
            return operations(id) + b"Q"
        case Raw(given):
            return given
    raise TypeError(f"{type(value).__name__} is not written by hand here")


@dataclass(frozen=True)
class Scene:
    """The files that a payload would create, run or harm; all of them outside of the work directory."""

    folder: Path

    @property
    def canary(self) -> str:
        return str(self.folder / "canary")

    @property
    def victim(self) -> str:
        return str(self.folder / "victim.pth")

    def set(self) -> None:
        self.folder.mkdir()
        Path(self.victim).write_text("dear")
        (self.folder / "home").mkdir()
        (self.folder / "home" / "letter").write_text("dear")
        (self.folder / "evil_module.py").write_text(self.code)
        (self.folder / "evil.pkl").write_bytes(pickled(self.by_eval))

    @property
    def code(self) -> str:
        return f"open({self.canary!r}, 'w').close()"

    @property
    def by_eval(self) -> Call:
        return Call(Global("builtins", "eval"), (self.code,))

    def payloads(self) -> dict[str, object]:
        """Return values that do harm if they are really unpickled."""
        touch, canary, victim = f"touch {self.canary}", self.canary, self.victim
        of, partial = Global("builtins", "getattr"), Global("functools", "partial")
        evil, load = str(self.folder / "evil.pkl"), Global("torch", "load")
        compiled = marshal.dumps(compile(self.code, "evil", "exec"))
        loading = Build(Call(partial, (load,)), (load, (evil,), {"weights_only": False}, None))

        def call(name: str, *arguments: object) -> Call:
            return Call(Global(*name.rsplit(".", 1)), arguments)

        def method(thing: object, name: str, *arguments: object) -> Call:
            return Call(Call(of, (thing, name)), arguments)

        return {
            "os.system": call("os.system", touch),
            "posix.system": call("posix.system", touch),
            "os.popen": call("os.popen", touch),
            "subprocess.call": call("subprocess.call", ["touch", canary]),
            "subprocess.Popen": call("subprocess.Popen", ["touch", canary]),
            "os.posix_spawnp": call("os.posix_spawnp", "touch", ["touch", canary], {}),
            "eval": self.by_eval,
            "eval of Python 2": call("__builtin__.eval", self.code),
            "exec": call("builtins.exec", self.code),
            "open": call("builtins.open", canary, "w"),
            "io.open": call("io.open", canary, "w"),
            "FileIO": call("_io.FileIO", canary, "w"),
            "Path.touch": Call(call("operator.methodcaller", "touch"), (call("pathlib.Path", canary),)),
            "FileHandler": call("logging.FileHandler", canary),
            "mkdir": call("os.mkdir", canary),
            "mkdtemp": call("tempfile.mkdtemp", None, None, str(self.folder)),
            "symlink": call("os.symlink", "/", canary),
            "link": call("os.link", victim, canary),
            "remove": call("os.remove", victim),
            "rename": call("os.rename", victim, canary),
            "truncate": call("os.truncate", victim, 0),
            "rmtree": call("shutil.rmtree", str(self.folder / "home")),
            "copy": call("shutil.copyfile", victim, canary),
            "urlretrieve": call("urllib.request.urlretrieve", f"file://{victim}", canary),
            "putenv": call("os.putenv", "IGNITE_HOOKS_CANARY", "1"),
            "environ": method(Global("os", "environ"), "update", {"IGNITE_HOOKS_CANARY": "1"}),
            "connect": call("socket.create_connection", ("127.0.0.1", 9)),
            "dlopen": call("ctypes.CDLL", "libm.so.6"),
            "__import__": method(call("builtins.__import__", "os"), "system", touch),
            "import_module": method(call("importlib.import_module", "os"), "system", touch),
            "module of their own": call("importlib.import_module", "evil_module"),
            "run_path": call("runpy.run_path", str(self.folder / "evil_module.py")),
            "run_module": call("runpy.run_module", "evil_module"),
            "timeit": call("timeit.timeit", "pass", self.code),
            "numpy runstring": call("numpy.testing._private.utils.runstring", self.code, {}),
            "yaml": call("yaml.unsafe_load", f"!!python/object/apply:os.system ['{touch}']"),
            "pickle.loads": call("pickle.loads", pickled(self.by_eval)),
            "pickle in pickle": call("pickle.loads", pickled(call("pickle.loads", pickled(self.by_eval)))),
            "_load_from_bytes": call("torch.storage._load_from_bytes", as_plain(pickled(self.by_eval))),
            "torch.load": Call(loading, ()),
            "marshal": Call(call("types.FunctionType", call("marshal.loads", compiled), {}), ()),
            "map": call("builtins.list", call("builtins.map", Global("os", "system"), [touch])),
            "partial": Call(Call(partial, (Global("os", "system"), touch)), ()),
            "getattr chain": method(method(Global("os", "path"), "__getattribute__", "os"), "system", touch),
            "dict of a module": method(method(Global("os", "__dict__"), "get", "system"), "__call__", touch),
            "INST": Raw(b"(" + operations(touch) + b"ios\nsystem\n"),
            "OBJ": Raw(b"(" + operations(Global("os", "system")) + operations(touch) + b"o"),
            "STACK_GLOBAL": Call(Raw(operations("os") + operations("system") + b"\x93"), (touch,)),
            "thrown away": Raw(operations(call("os.system", touch)) + b"0N"),
        }


FLOATS = Persistent(("storage", Global("torch", "FloatStorage"), "0", "cpu", 4))


def rebuilt(storage: object = FLOATS, offset: object = 0, size: object = (2,), stride: object = (1,)) -> Call:
    hooks = Call(Global("collections", "OrderedDict"), ())
    return Call(Global("torch._utils", "_rebuild_tensor_v2"), (storage, offset, size, stride, False, hooks))


def hidden(payload: object, draw: random.Random) -> tuple[str, object]:
    """Return a payload somewhere in what looks like a state, and the name of the place."""
    deep: object = payload
    for _ in range(draw.randrange(2, 60)):
        deep = [deep] if draw.random() < 0.5 else {"a": deep}
    ordered = Call(Global("collections", "OrderedDict"), ())
    places = {
        "alone": payload,
        "weights": {"state_dict": payload},
        "a weight": {"state_dict": {"weight": payload, "bias": rebuilt()}},
        "meta": {"state_dict": {}, "meta": {"iter": payload}},
        "a hook": {"state_dict": {}, "hooks": {"CheckpointHook": payload}},
        "deep": {"state_dict": {}, "best": deep},
        "a key": {"state_dict": {}, "metrics": Raw(b"}" + operations(payload) + b"Ns")},
        "an item of an OrderedDict": Call(Global("collections", "OrderedDict"), ([("a", payload)],)),
        "the state of an OrderedDict": Build(ordered, payload),
        "the dict of an OrderedDict": Build(ordered, {"__class__": payload}),
        "the storage of a tensor": {"state_dict": {"weight": rebuilt(storage=payload)}},
        "the size of a tensor": {"state_dict": {"weight": rebuilt(size=payload)}},
        "the type of a storage": {"a": rebuilt(Persistent(("storage", payload, "0", "cpu", 4)))},
        "a persistent id": {"a": Persistent(payload)},
        "the state of a parameter": Call(
            Global("torch._utils", "_rebuild_parameter_with_state"), (rebuilt(), True, ordered, payload)
        ),
        "the state of a tensor": Call(
            Global("torch._tensor", "_rebuild_from_type_v2"), (payload, Global("torch", "Tensor"), (), payload)
        ),
        "the class of a tensor": Call(
            Global("torch._utils", "_rebuild_wrapper_subclass"),
            (payload, Global("torch", "float32"), (2,), (1,), 0, None, "cpu", False),
        ),
        "an argument that is new": New(Global("torch", "Size"), (payload,)),
    }
    place = draw.choice(list(places))
    return place, places[place]


def strange() -> dict[str, object]:
    """Return values that ``weights_only`` allows, in unusual uses."""

    def storage(*changes: object) -> dict[str, object]:
        return {"state_dict": {"weight": rebuilt(Persistent(changes))}}

    def weight(value: object) -> dict[str, object]:
        return {"state_dict": {"weight": value, "bias": value}}

    floats, float32 = Global("torch", "FloatStorage"), Global("torch", "float32")
    nothing = Call(Global("collections", "OrderedDict"), ())
    nested: object = 1
    for _ in range(400):
        nested = [nested]
    return {
        "huge bytearray": weight(Call(Global("builtins", "bytearray"), (10**14,))),
        "large bytearray": weight(Call(Global("builtins", "bytearray"), (10**10,))),
        "huge text": Raw(b"X\xff\xff\xff\xffabc"),
        "huge text of 8 bytes length": Raw(b"\x8d" + b"\xff" * 7 + b"\x7fabc"),
        "huge number": Raw(b"\x8b\xff\xff\xff\x7fabc"),
        "far memo": Raw(b"Nr\xff\xff\xff\x7f"),
        "unknown memo": Raw(b"h\x63"),
        "empty stack": Raw(b"tR"),
        "no end": Raw(b"N" * 1000),
        "extension": Raw(b"\x82\x01"),
        "huge storage": storage("storage", floats, "0", "cpu", 2**62),
        "negative storage": storage("storage", floats, "0", "cpu", -1),
        "storage elsewhere": storage("storage", floats, "../../victim.pth", "cpu", 4),
        "storage of a path": storage("storage", floats, "/etc/passwd", "cpu", 4),
        "storage on no device": storage("storage", floats, "0", "../evil", 4),
        "storage on a GPU": storage("storage", floats, "0", "cuda:99", 4),
        "storage on meta": storage("storage", floats, "0", "meta", 4),
        "storage of an int": storage("storage", 5, "0", "cpu", 4),
        "storage of a dict": storage("storage", {}, [], {}, ()),
        "other kind of id": storage("module", "os", "system", "touch"),
        "short id": storage("storage"),
        "id that is text": weight(Persistent("../victim.pth")),
        "id that is a number": weight(Persistent(7)),
        "id that is nothing": weight(Persistent(None)),
        "text id": weight(Raw(b"P../victim.pth\n")),
        "negative offset": weight(rebuilt(offset=-4)),
        "far offset": weight(rebuilt(offset=2**62)),
        "huge size": weight(rebuilt(size=(2**40, 2**40))),
        "overflowing size": weight(rebuilt(size=(2**62, 4))),
        "endless view": weight(rebuilt(size=(10**9, 10**9), stride=(0, 0))),
        "negative stride": weight(rebuilt(size=(2,), stride=(-1,))),
        "sizes of text": weight(rebuilt(size=("a",), stride=("b",))),
        "tensor of no storage": weight(rebuilt(storage=None)),
        "meta tensor": weight(
            Call(Global("torch._utils", "_rebuild_meta_tensor_no_storage"), (float32, (10**9, 10**9), (1, 1), False))
        ),
        "sparse beyond its size": weight(
            Call(
                Global("torch._utils", "_rebuild_sparse_tensor"),
                (
                    Call(Global("torch.serialization", "_get_layout"), ("torch.sparse_coo",)),
                    (rebuilt(size=(1, 2)), rebuilt(), (1,), True),
                ),
            )
        ),
        "layout of another thing": weight(Call(Global("torch.serialization", "_get_layout"), ("__import__",))),
        "quantised nonsense": weight(
            Call(Global("torch._utils", "_rebuild_qtensor"), (FLOATS, 0, (2,), (1,), (), 0, {}))
        ),
        "nested nonsense": weight(Call(Global("torch._utils", "_rebuild_nested_tensor"), (rebuilt(), 1, 2, 3))),
        "numpy nonsense": weight(
            Call(Global("torch._utils", "_rebuild_device_tensor_from_numpy"), ("a", float32, "cpu", False))
        ),
        "subclass": weight(
            Call(
                Global("torch._utils", "_rebuild_wrapper_subclass"),
                (Global("torch", "Tensor"), float32, (2,), (1,), 0, None, "cpu", False),
            )
        ),
        "type of another thing": weight(
            Call(
                Global("torch._tensor", "_rebuild_from_type_v2"),
                (Global("_codecs", "encode"), Global("torch", "Tensor"), ("a", "rot13"), {}),
            )
        ),
        "methods replaced": weight(Build(rebuilt(), {"copy_": "evil", "shape": "evil", "__class__": "evil"})),
        "codec that unpacks": weight(Call(Global("_codecs", "encode"), ("x", "zip"))),
        "codec that does not exist": weight(Call(Global("_codecs", "encode"), ("x", "../evil_module"))),
        "codec of their own": weight(Call(Global("_codecs", "encode"), ("x", "evil_module"))),
        "device of nonsense": weight(Call(Global("torch", "device"), ("../evil",))),
        "device of a GPU": weight(Call(Global("torch", "device"), ("cuda", 99))),
        "negative size": weight(Call(Global("torch", "Size"), ((-1, 2),))),
        "set of a list": weight(Call(Global("builtins", "set"), ([[1]],))),
        "counter": {"state_dict": Call(Global("collections", "Counter"), ("abc",))},
        "dict that is a list": {"state_dict": Call(Global("collections", "OrderedDict"), (5,))},
        "methods of a dict": {"state_dict": Build(nothing, {"items": "evil", "copy": "evil", "_metadata": 5})},
        "everything that is deep": dict.fromkeys(("state_dict", "optimizer", "hooks", "best", "metrics"), nested),
        "itself": Raw(b"}q\x01" + operations("state_dict") + b"h\x01s" + operations("hooks") + b"h\x01s"),
        "not a dict": [1, 2, 3],
        "nothing": None,
        "a tensor": rebuilt(),
        "no keys": {},
        "keys that are numbers": {1: 2, None: 3, (): 4},
        "a class": {"state_dict": Global("torch", "Tensor")},
        "a dtype": {"state_dict": float32, "optimizer": float32},
    }


def as_plain(pickle_: bytes) -> bytes:
    return pickle_


def as_old(pickle_: bytes) -> bytes:
    """Return a file as torch wrote it before 1.6: magic number, version, system, object, keys of storages."""
    heads = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True})
    return (
        b"".join(pickle.dumps(head, 2) for head in heads)
        + pickle_
        + pickle.dumps(["0"], 2)
        + struct.pack("<q4f", 4, 1, 2, 3, 4)
    )


def as_tar(pickle_: bytes) -> bytes:
    """Return a file as torch wrote it before 0.1.10."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in {
            "sys_info": pickled({}),
            "storages": pickled(0),
            "tensors": pickled(0),
            "pickle": pickle_,
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def spliced(
    honest: bytes,
    pickle_: bytes,
    *,
    compressed: bool = False,
    twice: bool = False,
    more: dict[str, bytes] | None = None,
) -> bytes:
    """Return an honest file with another pickle and some added records."""
    file = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(io.BytesIO(honest)) as before, zipfile.ZipFile(file, "w", method) as after:
        for name in before.namelist():
            after.writestr(name, pickle_ if name.endswith("data.pkl") else before.read(name))
        root = before.namelist()[0].partition("/")[0]
        for name, data in (more or {}).items():
            after.writestr(f"{root}/{name}", data)
    return file.getvalue()


def wrapped(honest: bytes, pickle_: bytes, draw: random.Random) -> tuple[str, bytes]:
    """Return a file around a pickle, and the name of its format."""
    make = draw.choice(
        [
            "spliced",
            "spliced",
            "spliced",
            "compressed",
            "twice",
            "script",
            "paths",
            "plain",
            "old",
            "tar",
            "cut",
            "junk",
        ]
    )
    match make:
        case "spliced":
            return make, spliced(honest, pickle_)
        case "compressed":
            return make, spliced(honest, pickle_, compressed=True)
        case "script":
            return make, spliced(honest, pickle_, more={"constants.pkl": pickle_, "code/evil.py": b"import os"})
        case "paths":
            return make, spliced(honest, pickle_, more={"../../../victim.pth": b"evil", "/canary": b"evil"})
        case "plain":
            return make, as_plain(pickle_)
        case "old":
            return make, as_old(pickle_)
        case "tar":
            return make, as_tar(pickle_)
        case "cut":
            whole = spliced(honest, pickle_)
            return make, whole[: draw.randrange(len(whole))]
    return make, draw.randbytes(draw.randrange(1, 64)) + spliced(honest, pickle_)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return the data with some bytes changed, removed or added."""
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 4, 16])):
        at = draw.randrange(len(changed))
        match draw.randrange(4):
            case 0:
                changed[at] = draw.randrange(256)
            case 1:
                changed[at] ^= 1 << draw.randrange(8)
            case 2:
                del changed[at]
            case 3:
                changed.insert(at, draw.choice(b"(tRbQcis0.}]hjr\x93\x81\x82\x8a"))
    return bytes(changed)


def fields(state: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the places of all values in a state."""
    found = [place] if place else []
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    for key, value in list(items)[:40]:
        found += fields(value, (*place, key))
    return found
