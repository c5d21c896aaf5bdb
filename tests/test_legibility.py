"""The code is easy to read: one thought in a statement, nouns for values.

`findings` lists what a reader stumbles over in a file, from its syntax tree. ruff checks the rest: 120 columns, at most
seven arguments, complexity.
"""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Words that do not say what a value is.
VAGUE = frozenset(
    (
        "about apart asked both by drawn found given here kept known left made meant of one other others own said "
        "shown such there told those alone again away behind beside beyond every few further many more most none "
        "nothing now once only ones rest same several so some something taken them then these they thing things "
        "this that too used wanted was were what when where whether which who whole whom whose why without yet "
    ).split()
)
# Comments that may stand behind code: shapes, and marks for a tool.
BEHIND_CODE = re.compile(r"# ?(\(|noqa|fmt:|type:|pragma|ruff:)")
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
# Names by which users' files, other rooms and the documentation call; options that a caller's `opt` may lack.
CONTRACT = {
    "batch_mining/_miner.py": {"name own"},
    # a name that other programs call
    "architectures/__init__.py": {"name behind"},
    "batch_mining/semihard.py": {"getattr(opt, name, default)"},
    "criteria/center.py": {"getattr(opt, name, default)"},
    "datasets/__init__.py": {"getattr(opt, name, default)"},
    "evaluation/__init__.py": {"getattr(opt, name, default)"},
    "metrics/_answers.py": {"name known"},
    "metrics/_flags.py": {"getattr(opt, name, default)"},
    "metrics/_truth.py": {"name of"},
    "runs/embedder.py": {"name which"},
    "runs/folder.py": {"name which"},
    "trainers/_trainer.py": {"name once"},
    "utilities/criterion.py": {"name own"},
    "utilities/numbers.py": {"name whole", "name most"},
    "utilities/reference.py": {"name own"},
    "options/flags/rules.py": {"getattr(opt, name, default)"},
    "utilities/shards.py": {"name own", "name whole"},
}


def findings(source: str) -> list[str]:
    """What is hard to read in a Python source, each with its line."""
    tree = ast.parse(source)
    parents = {}
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            parents[child] = node
    listed = [(line, "comment behind code") for line in comments_behind_code(source, tree)]
    for node in parents:
        for rule in RULES.get(type(node), ()):
            finding = rule(node, parents)
            if finding:
                listed.append((getattr(node, "lineno", 0), finding))
    return listed


def comments_behind_code(source: str, tree: ast.AST) -> list[int]:
    """Lines whose comment belongs on a line of its own. Rows of a table, next to each other in brackets or outside
    functions, may each have theirs.
    """
    in_functions = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            in_functions.update(range(node.body[0].lineno, node.end_lineno + 1))
    in_brackets = {}
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
        is_behind = token.type == tokenize.COMMENT and not token.line.strip().startswith("#")
        if is_behind and not BEHIND_CODE.match(token.string):
            in_brackets[token.start[0]] = depth > 0
    lines = []
    for line, is_in_brackets in in_brackets.items():
        has_neighbour = line - 1 in in_brackets or line + 1 in in_brackets
        is_row = has_neighbour and (is_in_brackets or line not in in_functions)
        if not is_row:
            lines.append(line)
    return lines


def ancestors(node: ast.AST, parents: dict) -> list[ast.AST]:
    """The nodes around a node, up to its statement."""
    around = []
    while node in parents:
        node = parents[node]
        around.append(node)
        if isinstance(node, ast.stmt):
            break
    return around


def conditional_inside(node, parents):
    for outer in ancestors(node, parents):
        if isinstance(outer, ast.Lambda):
            return None
        if isinstance(outer, ast.IfExp):
            return "conditional expression in a conditional expression"
        if isinstance(outer, ast.Call):
            return "conditional expression in a call"
    return None


def comprehension_inside(node, parents):
    conditions = [generator.ifs for generator in node.generators]
    for outer in ancestors(node, parents):
        if isinstance(outer, ast.JoinedStr):
            return "comprehension in an f-string"
        if isinstance(outer, COMPREHENSIONS) and any(conditions + [generator.ifs for generator in outer.generators]):
            return "comprehension in a comprehension with a condition"
    return None


def loop_over_conditional(node, parents):
    return "loop over a conditional expression" if isinstance(node.iter, ast.IfExp) else None


def tuple_assignment(node, parents):
    """`a, b = x, y`; an exchange of values is none."""
    target = node.targets[0]
    if not isinstance(node.value, ast.Tuple) or not isinstance(target, ast.Tuple):
        return None
    names = sorted(map(ast.unparse, target.elts))
    values = sorted(map(ast.unparse, node.value.elts))
    return None if names == values else "several assignments in one"


def text_times_condition(node, parents):
    if not isinstance(node.op, ast.Mult):
        return None
    is_text = isinstance(node.left, ast.JoinedStr | ast.List | ast.Tuple)
    if isinstance(node.left, ast.Constant):
        is_text = isinstance(node.left.value, str)
    is_condition = isinstance(node.right, ast.Compare | ast.BoolOp)
    return "text times a condition" if is_text and is_condition else None


def vague_name(node, parents):
    name = None
    if isinstance(node, ast.arg):
        name = node.arg
    elif not isinstance(node, ast.Name):
        name = node.name.lower()
    elif isinstance(node.ctx, ast.Store):
        name = node.id
    return f"name {name}" if name in VAGUE else None


def undeclared_flag(node, parents):
    if getattr(node.func, "id", None) != "getattr" or len(node.args) != 3:
        return None
    namespace, name = map(ast.unparse, node.args[:2])
    # the number of classes is no flag: the data decides it
    is_flag = namespace.endswith("opt") and name != "'n_classes'"
    return "getattr(opt, name, default)" if is_flag else None


# kind of node -> what is looked for
RULES = {
    ast.IfExp: [conditional_inside],
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), [comprehension_inside]),
    **dict.fromkeys((ast.For, ast.comprehension), [loop_over_conditional]),
    ast.Assign: [tuple_assignment],
    ast.BinOp: [text_times_condition],
    **dict.fromkeys((ast.Name, ast.arg, ast.FunctionDef, ast.ClassDef), [vague_name]),
    ast.Call: [undeclared_flag],
}


def test_the_code_is_easy_to_read():
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    hard = []
    for name in listed.stdout.split():
        path = ROOT / name
        if name.startswith("tests/earlier_plug_ins/") or not path.exists():
            continue
        for line, finding in findings(path.read_text(encoding="utf-8")):
            if finding not in CONTRACT.get(name, ()):
                hard.append(f"{name}:{line}: {finding}")
    assert not hard


def test_what_is_hard_to_read_is_found():
    hard = {
        "f(a if b else c)": "conditional expression in a call",
        "x = a if b else (c if d else e)": "conditional expression in a conditional expression",
        "x = [[b for b in a if b] for a in c]": "comprehension in a comprehension with a condition",
        "x = f'{[a for a in b]}'": "comprehension in an f-string",
        "for a in (b if c else d): pass": "loop over a conditional expression",
        "a, b = 1, 2": "several assignments in one",
        "x = 'text' * (a > b)": "text times a condition",
        "found = 1": "name found",
        "def f(own): pass": "name own",
        "class Alone: pass": "name alone",
        "x = getattr(self.opt, 'lr', 1)": "getattr(opt, name, default)",
        "x = 1  # of all": "comment behind code",
        "x = [\n    1,  # of all\n    2,\n]": "comment behind code",
    }
    for source, finding in hard.items():
        assert [text for _, text in findings(source)] == [finding], source
    easy = ["a, b = b, a", "x = a if b else c", "x = [[b for b in a] for a in c]", "x = '-' * width", "query_rows = 1"]
    easy += ["# of all\nx = 1", "x = y  # (B, D)", "x = y  # noqa: E501", "x = 1  # of all\ny = 2  # of some"]
    for source in easy:
        assert not findings(source), source
