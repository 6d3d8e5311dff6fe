"""The rooms of the package: imports point down, and no name stands for two things."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import steinscope

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "steinscope"

# From bottom to top: each imports only from those before it.
LAYERS = (
    "errors shapes frames draws support metric registries settings supports flows foreign kernel_density "
    "central_differences densities unconstrained stein maps shards points scoring cluster chains folds models critics "
    "samplers objectives edges ties findings results effects explanation modes portfolio kernels gof estimation "
    "comparison bayes data training streams plots report experiments commands cli __main__ __init__"
).split()
# A result draws itself, and matplotlib is loaded when it does.
LAZY = {
    (module, "plots")
    for module in (
        *("results", "estimation", "comparison", "explanation", "modes.weights", "training.results"),
        "bayes.samples",
    )
}
# Experiments do not know of each other. These are not experiments: they are what several of them share.
SHARED = {"runner", "rates", "search", "image_judge", "image_data", "image_models", "moons_models"}


def imports(tree, lazy=False):
    """The modules and names of steinscope that are imported, and whether inside of a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        assert not getattr(node, "level", 0), "relative imports are not followed"
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", lazy) for alias in node.names if alias.name.startswith("steinscope"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("steinscope"):
            yield from ((node.module, alias.name, lazy) for alias in node.names)
        yield from imports(node, lazy or isinstance(node, ast.FunctionDef))


FOUND = [
    (
        ".".join(path.relative_to(SOURCE).with_suffix("").parts),
        module.removeprefix("steinscope").lstrip("."),
        name,
        lazy,
    )
    for path in sorted(SOURCE.rglob("*.py"))
    for module, name, lazy in imports(ast.parse(path.read_text()))
    # The version is a string of the package itself.
    if (module, name) != ("steinscope", "__version__")
]
ACROSS = [found for found in FOUND if found[0].split(".")[0] != found[1].split(".")[0]]


def test_imports_inside_of_functions_count_and_those_for_type_checkers_do_not():
    source = "import steinscope.a\nif TYPE_CHECKING:\n    import steinscope.b\ndef f():\n    from steinscope.c import x"
    assert list(imports(ast.parse(source))) == [("steinscope.a", "", False), ("steinscope.c", "x", True)]


def test_imports_point_down():
    height = {room: number for number, room in enumerate(LAYERS)}
    assert [
        found
        for found in ACROSS
        if height[found[1].split(".")[0] or "__init__"] >= height[found[0].split(".")[0]]
        and not (found[3] and found[:2] in LAZY)
    ] == []


def test_experiments_do_not_import_each_other():
    among = [found for found in FOUND if found[0].startswith("experiments.") and found[1].startswith("experiments")]
    assert [found for found in among if (found[1].split(".")[1:] or [found[2]])[0] not in SHARED] == []


def test_private_names_stay_in_their_room():
    assert [found for found in ACROSS if any(part.startswith("_") for part in [*found[1].split("."), found[2]])] == []


def test_no_module_bears_the_name_of_a_function():
    """`steinscope.train` would be a module or a function, whichever was imported last."""
    for path in SOURCE.rglob("*.py"):
        rooms = path.relative_to(SOURCE).with_suffix("").parts
        faces = steinscope, import_module(".".join(["steinscope", *rooms[:-1]]))
        public = {name: getattr(face, name) for face in faces for name in getattr(face, "__all__", ())}
        functions = {name for name, value in public.items() if inspect.isfunction(value)}
        # Of commands the file is the command.
        assert rooms[0] == "commands" or not functions & set(rooms), path


def test_no_file_is_long():
    lengths = {
        path: len(path.read_text().splitlines()) for root in ("src", "tests") for path in ROOT.glob(f"{root}/**/*.py")
    }
    assert {path: length for path, length in lengths.items() if length >= 450} == {}
