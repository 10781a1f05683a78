"""The house rules that a program can check: who imports whom, what files are called, what each must have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tilewright.compiler.families.gpu.families import FAMILIES
from tilewright.compiler.pipeline import registry
from tilewright.compiler.pipeline.pass_base import Pass

ROOT = Path(__file__).parents[2]
PACKAGES = {"compiler": "tilewright.compiler", "runtime": "tilewright.runtime", "tilewright": "tilewright"}
ROOMS = (
    *(
        "errors",
        "settings",
        "collector",
        "terminal",
        "targets",
        "nouns",
        "ir",
        "debug",
        "tuning",
        "dialects",
        "pipeline",
    ),
    *("analysis", "rewriting", "package", "gpu", "families", "passes", "codegen", "cache", "workers"),
    *(
        "profiler",
        "phases",
        "choice_space",
        "searched_choices",
        "searched_programs",
        "plugins",
        "options",
        "importers",
        "driver",
        "torch",
        "explain",
        "cli",
    ),
)
"""Folders and files of `compiler/`: each imports only what stands before it, so that no two import each other."""
WITHOUT_IR = ("errors", "settings", "targets", "nouns", "tuning")
"""What is decided, on plain data: no MLIR and no torch in it."""
INSIDE = {"workers": {"phases"}, "targets": {"debug"}, "settings": set()}
"""What a room imports inside of functions only: a worker runs whole phases, measuring a machine is logged."""
MAX_LINES = 500
BANNED_NAMES = re.compile(r"(^|_)(util|utils|helper|helpers|manager|misc|common)(_|$)")
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def sources() -> list[Path]:
    """Python files of the product: what is installed, without tests, examples and benchmarks."""
    return sorted(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py"))


def all_files(*suffixes: str) -> list[Path]:
    folders = ("bench", "compiler", "docs", "examples", "runtime", "test", "tilewright")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    return sorted(path for path in found if not {"__pycache__", "Output", "build"} & set(path.parts))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_name(path: Path) -> str:
    """`compiler/pipeline/pass_base.py` -> `tilewright.compiler.pipeline.pass_base`."""
    first, *rest = path.relative_to(ROOT).with_suffix("").parts
    parts = [PACKAGES[first], *rest]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path, top_level_only: bool = False) -> frozenset[str]:
    """Full names of everything that a file imports, inside functions too unless told otherwise."""
    found: set[str] = set()
    nodes = _outside_functions(tree(path)) if top_level_only else ast.walk(tree(path))
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}: relative imports hide who imports whom"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) or _is_type_checking(child):
            continue
        yield child
        yield from _outside_functions(child)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def is_of(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def imported(path: Path, *packages: str) -> set[str]:
    return {name for name in imports(path) for package in packages if is_of(name, package)}


@pytest.mark.parametrize("path", sources(), ids=relative)
class TestEveryModule:
    def test_says_in_one_sentence_what_it_holds(self, path: Path) -> None:
        first = (ast.get_docstring(tree(path)) or "").partition("\n\n")[0]
        assert first, f"{relative(path)} has no docstring"
        assert first.rstrip("`").endswith((".", ":", "!")), f"{relative(path)}: `{first}` is no sentence"

    def test_has_a_name_that_says_something(self, path: Path) -> None:
        assert not BANNED_NAMES.search(path.stem), f"{relative(path)}: name the file for what it holds"
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                snake = re.sub(r"(?<!^)(?=[A-Z])", "_", node.name).lower()
                assert not BANNED_NAMES.search(snake), f"{relative(path)}: class {node.name}"

    def test_swallows_no_exception_silently(self, path: Path) -> None:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ExceptHandler):
                silent = all(isinstance(statement, ast.Pass) for statement in node.body)
                assert not silent, f"{relative(path)}:{node.lineno}: an exception is dropped without a word"
                assert node.type is not None, f"{relative(path)}:{node.lineno}: a bare `except:`"

    def test_leaves_the_environment_to_settings(self, path: Path) -> None:
        if path.name == "settings.py":
            return
        text = ast.unparse(tree(path))
        assert not re.search(r"\bos\.environ\b|\bgetenv\(", text), f"{relative(path)}: read it in settings.py"

    def test_goes_through_the_one_door_to_the_bindings(self, path: Path) -> None:
        if relative(path) == "compiler/ir.py" or "importers" in path.parts:
            return
        assert not imported(path, "torch_mlir"), f"{relative(path)}: import from tilewright.compiler.ir"


@pytest.mark.parametrize("path", all_files(".py", ".cpp", ".h", ".cu"), ids=relative)
def test_files_stay_readable(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_LINES, f"{relative(path)} has {lines} lines; split it by what its parts are about"


@pytest.mark.parametrize("path", all_files(".py", ".cpp", ".h", ".md", ".mlir"), ids=relative)
def test_nothing_is_left_unfinished(path: Path) -> None:
    assert not UNFINISHED.search(path.read_text(encoding="utf-8")), (
        f"{relative(path)}: finish it or leave it out"
    )


@pytest.mark.parametrize("path", sorted((ROOT / "runtime").rglob("*.py")), ids=relative)
def test_the_runtime_never_imports_the_compiler(path: Path) -> None:
    assert not imported(path, "tilewright.compiler", "torch_mlir", "llvmlite")


@pytest.mark.parametrize("path", sorted((ROOT / "runtime").rglob("*.py")), ids=relative)
def test_models_load_without_torch(path: Path) -> None:
    """Files called `torch_*` speak torch; every other one imports them, and torch, only where it calls them."""
    if path.name.startswith("torch_"):
        return
    loaded = {
        name for name in imports(path, top_level_only=True) if is_of(name, "torch") or ".torch_" in name
    }
    assert not loaded, f"{relative(path)}: import {sorted(loaded)} where they are used"


def room_of(name: str) -> str:
    """The room that a module is in: `tilewright.compiler.passes.graph.fill_splats` -> `passes`."""
    return name.removeprefix("tilewright.compiler.").partition(".")[0]


def compiler_sources(*rooms: str) -> list[Path]:
    """Python files of some rooms, subfolders included; of all of them where none is named."""
    paths = sorted((ROOT / "compiler").rglob("*.py"))
    inside = [path for path in paths if path != ROOT / "compiler/__init__.py"]
    return [path for path in inside if not rooms or room_of(module_name(path)) in rooms]


@pytest.mark.parametrize("path", compiler_sources(), ids=relative)
def test_rooms_import_only_those_before_them(path: Path) -> None:
    room = room_of(module_name(path))
    assert room in ROOMS, (
        f"give {room} a place in the order of rooms, and say in CONTRIBUTING.md what it holds"
    )
    allowed = {*ROOMS[: ROOMS.index(room) + 1], *INSIDE.get(room, ())}
    extra = {
        name
        for name in imported(path, "tilewright.compiler")
        if name != "tilewright.compiler" and room_of(name) not in allowed
    }
    assert not extra, f"{relative(path)} imports {sorted(extra)}"


@pytest.mark.parametrize("path", compiler_sources(*WITHOUT_IR), ids=relative)
def test_decisions_are_made_without_any_ir(path: Path) -> None:
    """Cost models are networks of PyTorch's; what imports programs from it is another room's."""
    is_network = path.parent.name == "cost_models"
    assert not imported(path, *(() if is_network else ("torch",)), "torch_mlir", "tilewright.compiler.ir")


@pytest.mark.parametrize("path", compiler_sources("dialects", "passes", "families", "codegen"), ids=relative)
def test_passes_and_kernels_know_no_front_end(path: Path) -> None:
    assert not imported(path, "torch")


@pytest.mark.parametrize("path", sorted((ROOT / "compiler").rglob("*/__init__.py")), ids=relative)
def test_no_two_folders_import_each_other(path: Path) -> None:
    """Subfolders too: `passes.graph` and `passes.layout`, not only `passes` and `families`."""
    folder = module_name(path)
    outward = {
        folder_of(name) for own in path.parent.glob("*.py") for name in imported(own, "tilewright.compiler")
    }
    for other in sorted(outward - {folder, "tilewright.compiler"}):
        files = (ROOT / "compiler" / "/".join(other.split(".")[2:])).glob("*.py")
        back = {folder_of(name) for own in files for name in imported(own, "tilewright.compiler")}
        assert folder not in back, f"{folder} and {other} import each other"


def folder_of(name: str) -> str:
    """The folder that a module, or a name in one, is in."""
    parts = name.split(".")
    while len(parts) > 2 and not (ROOT / "compiler" / "/".join(parts[2:])).is_dir():
        parts.pop()
    return ".".join(parts)


@pytest.mark.parametrize("path", sorted((ROOT / "compiler/families/cpu").glob("*.py")), ids=relative)
def test_loops_are_written_without_a_choice(path: Path) -> None:
    """What a CPU's loops are made of is said by the schedule; only the table of kinds ranks what it may say."""
    if path.stem not in ("kinds", "dispatch_space", "proposals"):
        assert not imported(path, "tilewright.compiler.tuning")


@pytest.mark.parametrize("path", sorted((ROOT / "compiler/passes/lower_cpu").glob("*.py")), ids=relative)
def test_passes_that_lower_for_cpus_choose_nothing(path: Path) -> None:
    assert not imported(path, "tilewright.compiler.tuning")


def closure(module: str, top_level_only: bool = True) -> set[str]:
    """All modules of ours that importing `module` loads at once; those that it imports inside functions too if told so."""
    files = {module_name(path): path for path in sources()}
    seen: set[str] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        if name in seen or name not in files:
            continue
        seen.add(name)
        for found in imports(files[name], top_level_only):
            pending += [found, found.rpartition(".")[0]]
    return seen


GPU_FAMILIES = sorted(path.parent.name for path in (ROOT / "compiler/families").glob("*/family.py"))
CHOOSER = "choice"
"""What the module of a family is called that completes schedules; all others of its folder write kernels."""


def test_every_family_of_gpu_kernels_is_known() -> None:
    assert set(GPU_FAMILIES) == set(FAMILIES)


@pytest.mark.parametrize("module", ["family", "space"])
@pytest.mark.parametrize("family", GPU_FAMILIES)
def test_what_writes_gpu_kernels_reaches_no_chooser(family: str, module: str) -> None:
    """Nor does what says which there are; not through other modules either, nor by an import inside of a function."""
    reached = closure(f"tilewright.compiler.families.{family}.{module}", top_level_only=False)
    assert f"tilewright.compiler.families.{family}.{module}" in reached
    choosers = {n for n in reached if is_of(n, "tilewright.compiler.tuning") or n.endswith(f".{CHOOSER}")}
    assert not choosers, f"{family}.{module} reaches {sorted(choosers)}"


@pytest.mark.parametrize(
    "path",
    [path for family in GPU_FAMILIES for path in sorted((ROOT / "compiler/families" / family).glob("*.py"))],
    ids=relative,
)
def test_choices_of_gpu_kernels_are_made_in_one_module(path: Path) -> None:
    if path.stem != CHOOSER:
        assert not imported(path, "tilewright.compiler.tuning")


@pytest.mark.parametrize("path", [*compiler_sources("families"), *compiler_sources("passes")], ids=relative)
def test_what_writes_kernels_never_asks_for_the_number_of_a_block(path: Path) -> None:
    """Which block does which rTask is decided in `gpu/`, so that bodies of several kernels can be put into one."""
    found = re.findall(r"\b(?:block_id|BlockIdOp|grid_dim|GridDimOp|cluster_id)\b", path.read_text("utf-8"))
    assert not found, f"{relative(path)} names {found[0]}; ask the kernel for its `rtask` or its `share`"


@pytest.mark.parametrize("path", compiler_sources("codegen"), ids=relative)
def test_code_generation_chooses_nothing(path: Path) -> None:
    assert not imported(path, "tilewright.compiler.tuning")


def test_the_opt_tool_never_reaches_torch() -> None:
    files = {module_name(path): path for path in sources()}
    reached = closure("tilewright.compiler.cli.opt")
    for name in registry.names():
        reached |= closure(module_name(registry.path_of(name)))
    assert "tilewright.compiler.pipeline.pipeline" in reached
    for module in sorted(reached):
        torch = {name for name in imports(files[module], top_level_only=True) if is_of(name, "torch")}
        assert not torch, f"{module} imports {sorted(torch)}"


@pytest.mark.parametrize("name", registry.names())
class TestEveryPass:
    def path(self, name: str) -> Path:
        return ROOT / registry.path_of(name).relative_to(Path(registry.__file__).parents[2])

    def test_is_one_class_called_like_its_file(self, name: str) -> None:
        loaded = registry.load(name)
        assert loaded is not None
        assert issubclass(loaded, Pass)
        assert loaded.name() == name
        own = [node for node in tree(self.path(name)).body if isinstance(node, ast.ClassDef)]
        derived = [node.name for node in own if any(ast.unparse(base) == "Pass" for base in node.bases)]
        assert derived == [loaded.__name__]

    def test_documents_what_it_claims(self, name: str) -> None:
        loaded = registry.load(name)
        assert loaded is not None
        assert loaded.__doc__, f"{name} has no docstring"
        assert not loaded.__doc__.startswith(f"{loaded.__name__}("), (
            f"{name} has the dataclass's own docstring"
        )
        assert loaded.options() is not None

    def test_has_a_lit_test(self, name: str) -> None:
        test = ROOT / "test/lit/passes" / f"{name}.mlir"
        assert test.exists(), f"write {relative(test)}"
        text = test.read_text(encoding="utf-8")
        assert name in re.findall(r"[\w-]+", "".join(re.findall(r"RUN:.*", text))), (
            f"{relative(test)} never runs {name}"
        )

    def test_refusals_have_a_lit_test(self, name: str) -> None:
        refuses = any(isinstance(node, ast.Raise) for node in ast.walk(tree(self.path(name))))
        test = ROOT / "test/lit/passes" / f"{name}-invalid.mlir"
        if refuses:
            assert test.exists(), f"{name} raises errors: show each in {relative(test)}"


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports test files by their bare names: two of one name cannot be collected together."""
    names = sorted(path.name for path in (ROOT / "test/py").rglob("*.py") if path.name != "conftest.py")
    assert not {name for name in names if names.count(name) > 1}


def test_lit_tests_of_passes_belong_to_one() -> None:
    known = set(registry.names())
    for test in (ROOT / "test/lit/passes").glob("*.mlir"):
        stem = test.stem.removesuffix("-invalid")
        assert any(stem == name or stem.startswith(f"{name}-") for name in known), (
            f"{relative(test)} tests no pass"
        )


@pytest.mark.parametrize("path", [*all_files(".md"), *sorted(ROOT.glob("*.md"))], ids=relative)
def test_links_in_documents_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            continue
        file, _, _anchor = target.partition("#")
        assert (path.parent / file).exists(), f"{relative(path)} links to `{target}`, which does not exist"
