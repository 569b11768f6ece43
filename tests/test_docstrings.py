"""Every public name of refimpl says what its reader needs, to rules that a machine can hold it to; names are counted.

No rule asks for what a reader has before him already: what the head of a class or a file says holds for all that is in
it, and outside the contract an argument that stands alone, or that an example shows, needs no words of its own. Each
rule is shown to catch what it is there for, and to leave alone what it is not.
"""

import ast
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

import refimpl

# DESIGN's contract, and whatever else `import refimpl` offers: these explain every argument, with example and source.
CONTRACT = {
    *("Device", "PhysicalTokenBlock", "num_required_blocks", "SequenceStatus", "Sequence", "SamplingParams"),
    *("SequenceGroup", "UncachedBlockAllocator", "CachedBlockAllocator", "LRUEvictor", "AllocStatus"),
    *("BlockSpaceManager", "CacheConfig", "SchedulerConfig", "Scheduler", "ScheduledSequenceGroup"),
    *("SequenceGroupMetadata", "SchedulerOutputs", "KVCache", "slot_mapping", "paged_attention", "LLMEngine", "LLM"),
    *("RequestOutput", "check", "CheckResult"),
    *refimpl.__all__,
}
# First words of a docstring that says what is done, and not yet what comes back.
ACTIONS = re.compile(
    r"(Add|Answer|Append|Ask|Bind|Build|Call|Carry|Check|Choose|Collect|Compute|Continue|Convert|Copy|Count|Create|Decide"
    r"|Decode|Display|Draw|Drop|Encode|End|Evict|Execute|Fetch|Fill|Find|Finish|Fork|Generate|Get|Give|Hold|Judge|Keep"
    r"|Lay|Let|Load|Look|Lower|Make|Mark|Measure|Merge|Move|Parse|Pick|Play|Prepare|Print|Put|Queue|Read|Record|Release"
    r"|Remove|Render|Replace|Report|Reset|Restore|Run|Save|Schedule|Select|Serve|Set|Show|Simulate|Split|Start|Step|Stop"
    r"|Store|Take|Tell|Test|Time|Try|Turn|Update|Use|Wait|Walk|Write) "
)
SENTENCE_END = re.compile(r"[.:?!][)\"'`]*(?=\s|$)")
COMES_BACK = re.compile(r"\b(returns?|yields?|yielded)\b|; (the|its|an?|for|whether|where|what|how|None|\d)\b", re.I)
POINTS_ELSEWHERE = re.compile(r"\b(as|see|those of)\b[^.]*`|(^|: )`\w+`\.", re.I)  # "Arguments as for `poisson`."
SHAPE = re.compile(r"\[\w+[\],]")
SOURCE = re.compile(r"vLLM 0\.5\.4[,:] `[\w/.]+`|https://arxiv\.org/abs/\S+ section|no counterpart in vLLM", re.I)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Name:
    """A module, or a public class, function, method or property in it, and what is said of it."""

    layer: str
    module: str
    path: str  # "LRUEvictor.add" for a method, "" for the module
    node: ast.Module | ast.ClassDef | Function
    lines: list[str]  # of the file
    heads: tuple[str, ...] = ()  # the docstrings of the class that it is in, and of that class's or its own bases
    file_head: str = ""
    is_override: bool = False

    def __str__(self):
        return f"{self.module}: {self.path or 'the file'}"

    @property
    def doc(self):
        return ast.get_docstring(self.node) or ""

    @property
    def kind(self):
        if isinstance(self.node, ast.Module | ast.ClassDef):
            return "classes" if isinstance(self.node, ast.ClassDef) else "files"
        return "members" if "." in self.path else "functions"

    @property
    def in_contract(self):
        return self.path.partition(".")[0] in CONTRACT

    @property
    def told(self):
        """Where its arguments may be explained; the contract does not send anybody to the head of a file."""
        return "\n".join([self.doc, *self.heads, "" if self.in_contract else self.file_head])


@dataclass(frozen=True)
class Known:
    """What is known everywhere: arguments that the contract explains, such as `block_size`, and refimpl's classes."""

    arguments: set[str]
    classes: set[str]


def modules():
    """The public modules and their sources; none is imported, so that none can hide for want of torch."""
    root = Path(refimpl.__file__).parent
    for path in sorted(root.rglob("*.py")):
        parts = [part for part in path.relative_to(root.parent).with_suffix("").parts if part != "__init__"]
        if not any(part.startswith("_") for part in parts):
            yield ".".join(parts), path.read_text("utf-8")


def names_in(sources):
    """Every public name of these modules, each given as (module, source)."""
    trees = [(module, source.splitlines(), ast.parse(source)) for module, source in sources]
    packages = {module.rpartition(".")[0] for module, _, _ in trees}
    classes = {node.name: node for _, _, tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for module, lines, tree in trees:
        folder = ".".join(module.split(".")[:2])
        layer = folder if folder in packages else module.partition(".")[0]
        head = ast.get_docstring(tree) or ""
        yield Name(layer, module, "", tree, lines)
        for top in public(tree):
            bases = list(bases_of(top, classes))
            heads = tuple(ast.get_docstring(base) or "" for base in bases)
            yield Name(layer, module, top.name, top, lines, heads, head)
            heads = (ast.get_docstring(top) or "", *heads)
            inherited = {member.name for base in bases for member in public(base)}
            for member in public(top) if isinstance(top, ast.ClassDef) else ():
                path = f"{top.name}.{member.name}"
                yield Name(layer, module, path, member, lines, heads, head, member.name in inherited)


def bases_of(node, classes):
    """The classes that a class is built on, as far as they are refimpl's."""
    for base in getattr(node, "bases", []):
        if isinstance(base, ast.Name) and classes.get(base.id, node) is not node:
            yield classes[base.id]
            yield from bases_of(classes[base.id], classes)


def public(scope):
    """The classes and functions that a scope defines, under a condition or not."""
    for node in scope.body:
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from public(node)
        elif isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def makers(node):
    """What runs when the name is called: the function, or what a class does to make an object."""
    if isinstance(node, ast.ClassDef):
        return [n for n in node.body if isinstance(n, Function) and n.name in ("__init__", "__new__", "__post_init__")]
    return [node] if isinstance(node, Function) else []


def arguments(name):
    """What a caller passes, as (name, annotation); a record's are its fields, but for those that a comment explains."""
    for maker in makers(name.node):
        if maker.name != "__post_init__":
            spec = maker.args
            every = [*spec.posonlyargs, *spec.args, spec.vararg, *spec.kwonlyargs, spec.kwarg]
            return [(arg.arg, text_of(arg.annotation)) for arg in every if arg and arg.arg not in ("self", "cls")]
    fields = [n for n in name.node.body if isinstance(n, ast.AnnAssign)] if name.kind == "classes" else []
    fields = [n for n in fields if "  # " not in name.lines[n.end_lineno - 1] and not n.target.id.startswith("_")]
    return [(field.target.id, text_of(field.annotation)) for field in fields]


def text_of(node):
    return ast.unparse(node) if node else ""


def words(argument, classes, *, strictly):
    """What prose may call an argument: by its name or its classes, as words, too; loosely, by any word of its name."""
    found = {argument, argument.replace("_", " ")}
    for kind in classes:
        parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", kind)
        found |= {kind, " ".join(parts), *parts[-1:]}
    if not strictly:
        found |= {word for word in argument.split("_") if len(word) > 2} - {"num", "max", "new"}
    return {form for word in found if word for form in (word, word + "s", word + "es", word.removesuffix("s"))}


def is_named(argument, annotation, name, known):
    if not name.in_contract and (argument in known.arguments or len(argument) == 1):
        return True
    classes = known.classes.intersection(re.findall(r"\w+", annotation))
    wanted = words(argument, classes, strictly=name.in_contract)
    return re.search(rf"(?<!\w)({'|'.join(map(re.escape, wanted))})(?!\w)", name.told, re.I) is not None


def begins_with_a_sentence(name, known):
    if not name.doc:
        yield "has no docstring"
    elif not SENTENCE_END.search(name.doc.splitlines()[0]):
        yield f"begins with half a sentence: {name.doc.splitlines()[0]}"


def file_opens_with_two_sentences(name, known):
    if name.kind == "files" and len(SENTENCE_END.findall(name.doc)) < 2:
        yield "opens with fewer than two sentences"


def arguments_are_named(name, known):
    is_told_elsewhere = name.is_override or POINTS_ELSEWHERE.search(name.doc)
    needs_no_words = not name.in_contract and (len(arguments(name)) == 1 or ">>> " in name.doc)
    if not is_told_elsewhere and not needs_no_words:
        missing = [argument for argument, kind in arguments(name) if not is_named(argument, kind, name, known)]
        if missing:
            yield f"does not name {', '.join(missing)}"


def result_is_said(name, known):
    """Unless its type does: a class of refimpl's says what it is."""
    result = text_of(getattr(name.node, "returns", None))
    is_said = result in ("", "None", "NoReturn", *known.classes) or COMES_BACK.search(name.doc)
    if ACTIONS.match(name.doc) and not is_said and not name.is_override:
        yield f"does not say what it returns: {result}"


def errors_are_named(name, known):
    for error in sorted({error for maker in makers(name.node) for error in raised(maker)}):
        if error not in name.doc and not POINTS_ELSEWHERE.search(name.doc):
            yield f"does not say when it raises {error}"


def raised(scope):
    """The classes of the errors that a body raises itself, not counting functions inside it."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = text_of(node.exc.func if isinstance(node.exc, ast.Call) else node.exc).rpartition(".")[2]
            if error[0].isupper():
                yield error
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            yield from raised(node)


def tensors_have_shapes(name, known):
    if name.kind in ("functions", "members") and not name.is_override and not POINTS_ELSEWHERE.search(name.doc):
        passed = arguments(name) if name.in_contract or len(arguments(name)) > 1 else []
        tensors = [what for what, kind in [*passed, ("the result", text_of(name.node.returns))] if is_tensor(kind)]
        if tensors and not SHAPE.search(name.told):
            yield f"gives no shape of {', '.join(tensors)}"


def is_tensor(annotation):
    return re.search(r"\bTensor\b", annotation) is not None and "dict[" not in annotation


def contract_has_an_example(name, known):
    """A member of an enum, and a record that nothing is done with, is its own."""
    if name.in_contract and name.kind in ("classes", "functions") and ">>> " not in name.doc:
        is_class = name.kind == "classes"
        is_enum = is_class and any("Enum" in text_of(base) for base in name.node.bases)
        is_record = is_class and not any(isinstance(node, Function) for node in name.node.body)
        if not is_enum and not is_record:
            yield "has no example"


def contract_has_a_source(name, known):
    if name.in_contract and name.kind in ("classes", "functions") and not SOURCE.search(name.doc):
        yield "has no source: vLLM 0.5.4 with a file, a paper with a section, or that vLLM has no counterpart"


RULES = [
    begins_with_a_sentence,
    file_opens_with_two_sentences,
    arguments_are_named,
    result_is_said,
    errors_are_named,
    tensors_have_shapes,
    contract_has_an_example,
    contract_has_a_source,
]


def problems(names, rules=RULES):
    known = Known(
        arguments={argument for name in names if name.in_contract for argument in explained(name.doc)},
        classes={name.path for name in names if name.kind == "classes"},
    )
    return [f"{name} {problem}" for name in names for rule in rules for problem in rule(name, known)]


def explained(doc):
    """The arguments that the `Args:` of a docstring explain; several may share an entry."""
    entries = re.search(r"^Args:\n((?: .*\n|\n)+)", doc + "\n", re.M)
    for entry in re.findall(r"^    (\w[\w, ]*):", entries[1], re.M) if entries else ():
        yield from entry.split(", ")


def table(names):
    """How many names there are, by layer and kind."""
    counts = Counter((name.layer, name.kind) for name in names)
    kinds = ("files", "classes", "functions", "members")
    rows = [("", *kinds)]
    rows += [(layer, *(counts[layer, kind] for kind in kinds)) for layer in sorted({name.layer for name in names})]
    return "\n".join(f"{layer:<24}" + "".join(f"{count:>10}" for count in counted) for layer, *counted in rows)


@pytest.fixture(scope="module")
def names():
    return list(names_in(modules()))


def test_every_public_name_keeps_the_rules(names):
    found = problems(names)
    print(f"{table(names)}\n{len(names)} names, {len(found)} things missing")
    assert not found, "\n".join(["what is missing:", *found])


def test_all_layers_are_counted_and_whatever_refimpl_offers(names):
    folders = {f"refimpl.{path.parent.name}" for path in Path(refimpl.__file__).parent.glob("*/__init__.py")}
    assert {name.layer for name in names} == {"refimpl", *folders}
    defined = {name.path for name in names}
    aliases = {"BlockHash", "BlockTable"}  # of types, with a docstring below them that no program sees
    assert CONTRACT - aliases <= defined


CACHE_CONFIG = '''class CacheConfig:
    """How memory is cut.

    Args:
        {}: in blocks.
    """
'''
PLANTED = [  # rule, what breaks it, what it says, what keeps it
    (begins_with_a_sentence, "def f(): ...", "f has no docstring", "def f(): 'Nothing.'"),
    (
        begins_with_a_sentence,
        "class A:\n    'A pool.'\n    def f(self): 'Blocks that are\\nfree.'",
        "A.f begins with half a sentence: Blocks that are",
        "class A:\n    'A pool.'\n    def f(self): 'Blocks that are free. (All\\nof them.)'",
    ),
    (
        begins_with_a_sentence,
        "class A:\n    'A pool.'\n    @property\n    def f(self): ...",
        "A.f has no docstring",
        "class A:\n    'A pool.'\n    def __len__(self): ...\n    def _f(self): ...",
    ),
    (begins_with_a_sentence, "if True:\n    def f(): ...", "f has no docstring", "if True:\n    def _f(): ..."),
    (file_opens_with_two_sentences, "'Blocks.'", "the file opens with fewer than two sentences", "'Blocks. No more.'"),
    (
        arguments_are_named,
        "def f(path, limit): 'The lines of the file at `path`.'",
        "f does not name limit",
        "def f(path, limit): 'The lines of the file at `path`, as many as the limit.'",
    ),
    (
        arguments_are_named,
        "class A:\n    'A pool.'\n    def f(self, name, owner): 'The owners.'",
        "A.f does not name name",
        "class A:\n    'A pool, by name.'\n    def f(self, name, owner): 'The owners.'",
    ),
    (
        arguments_are_named,
        "class A:\n    'One row.'\n    name: str\n    top: int  # of the scale\n    height: int",
        "A does not name name, height",
        "class A:\n    'One row: a name and a height.'\n    name: str\n    top: int  # of the scale\n    height: int",
    ),
    (
        arguments_are_named,
        "class LRUEvictor:\n    def remove(self, block_hash): 'Take a block back.'",
        "LRUEvictor.remove does not name block_hash",
        "class LRUEvictor:\n    def remove(self, block_hash): 'Take a block back by its block hash.'",
    ),
    (
        arguments_are_named,
        CACHE_CONFIG.format("num_gpu_blocks") + "def num_watermark_blocks(num_gpu_blocks): 'Blocks.'",
        "num_watermark_blocks does not name num_gpu_blocks",
        CACHE_CONFIG.format("num_gpu_blocks") + "def num_watermark_blocks(num_gpu_blocks): 'Of num_gpu_blocks a few.'",
    ),
    (
        arguments_are_named,
        CACHE_CONFIG.format("free") + "def f(num_gpu_blocks, name): 'The name.'",
        "f does not name num_gpu_blocks",
        CACHE_CONFIG.format("num_gpu_blocks, num_cpu_blocks") + "def f(num_gpu_blocks, name): 'The name.'",
    ),
    (
        arguments_are_named,
        "class A:\n    def f(self, one, two): 'Both.'\nclass B:\n    def f(self, one, two): 'One and two.'",
        "A.f does not name one, two",
        "class A:\n    def f(self, one, two): 'One and two.'\n"
        "class B(A):\n    'B.'\nclass C(B):\n    def f(self, one, two): 'Both.'",
    ),
    (
        result_is_said,
        "def f() -> int: 'Print the table.'",
        "f does not say what it returns: int",
        "def f() -> int: 'Print the table; the exit code.'\ndef g() -> int: 'Lines printed.'\ndef h(): 'Print it.'",
    ),
    (
        result_is_said,
        "def f() -> Report: 'Run everything.'",
        "f does not say what it returns: Report",
        "class Report: 'What was found.'\ndef f() -> Report: 'Run everything.'",
    ),
    (
        errors_are_named,
        "def f():\n    'Blocks.'\n    if True:\n        raise ValueError('none')",
        "f does not say when it raises ValueError",
        "def f():\n    'Blocks. ValueError for none.'\n    if True:\n        raise ValueError('none')",
    ),
    (
        errors_are_named,
        "class A:\n    'A pool.'\n    def __init__(self):\n        raise errors.Empty",
        "A does not say when it raises Empty",
        "class A:\n    'A pool.'\n    def __init__(self):\n        def take():\n            raise Empty\n        raise",
    ),
    (
        tensors_have_shapes,
        "def f() -> torch.Tensor: 'The keys.'",
        "f gives no shape of the result",
        "def f() -> torch.Tensor: 'The keys: [num_tokens, head_dim].'",
    ),
    (
        tensors_have_shapes,
        "def f(query: Tensor, scale): 'Whether the query is large, by scale.'",
        "f gives no shape of query",
        "def f(query: Tensor, scale): 'Whether the query, shaped as for `paged_attention`, is large, by scale.'",
    ),
    (
        contract_has_an_example,
        "def slots(): 'Slots.'",
        "slots has no example",
        "def slots():\n    '''Slots.\n\n    >>> slots()\n    '''\n"
        "class Device(enum.Enum):\n    'Where.'\n    def is_gpu(self): ...",
    ),
    (
        contract_has_a_source,
        "class Device(enum.Enum): 'Where a block lies, as in vLLM.'",
        "Device has no source",
        "class Device(enum.Enum): 'Where a block lies. (vLLM 0.5.4: `vllm/utils.py`, `Device`.)'",
    ),
    (
        contract_has_a_source,
        "def slots(): 'Slots. Source: Kwon et al., 2023 (https://arxiv.org/abs/2309.06180).'",
        "slots has no source",
        "def slots(): 'Slots. Source: Kwon et al., 2023 (https://arxiv.org/abs/2309.06180), section 4.'",
    ),
]


@pytest.mark.parametrize(("rule", "bad", "said", "good"), PLANTED)
def test_a_rule_catches_what_it_is_there_for_and_nothing_else(rule, bad, said, good):
    assert broken(rule, good) == []
    (problem,) = broken(rule, bad)
    assert problem.startswith(f"planted: {said}")


def broken(rule, source):
    head = "" if rule is file_opens_with_two_sentences else "'A file. Planted.'\n"
    return problems(list(names_in([("planted", head + source)])), [rule])


def test_every_rule_has_been_broken():
    assert {rule for rule, *_ in PLANTED} == set(RULES)
