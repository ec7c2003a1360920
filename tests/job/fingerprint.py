#!/usr/bin/env python3
"""Prints a hash of what a case's run depends on: of `case.py`, the case's function and what it needs of its module, and
the modules of the folder that these import. Comments, what functions say of themselves, and other cases have no part in
it.

    fingerprint.py FOLDER CASE
"""

import ast
import hashlib
import os
import sys


def parse(path):
    """The statements of a file, without docstrings; each imports one name at most."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            del node.body[0]
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from (type(statement)(**{**vars(statement), "names": [name]}) for name in statement.names)
        else:
            yield statement


def find(folder, case):
    """The statements of the case's module, and the one that says which function it is."""
    for name in sorted(os.listdir(os.path.join(folder, "cases"))):
        if not name.endswith(".py"):
            continue
        statements = list(parse(os.path.join(folder, "cases", name)))
        for statement in statements:
            if binds(statement) != {"CASES"}:
                continue
            for key, function in zip(statement.value.keys, statement.value.values):
                if key.value == case:
                    statements.remove(statement)
                    return statements, function
    sys.exit(f"fingerprint.py: no case {case} in {folder}")


def binds(statement):
    """The names that a statement gives a meaning to."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(name.asname or name.name).split(".")[0] for name in statement.names}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def needed(statements, function):
    """Those that the function needs, directly or through others, and those that are there for what they do."""
    kept, names = [], {"*"}
    left, found = list(statements), [function]
    while found:
        names.update(node.id for part in found for node in ast.walk(part) if isinstance(node, ast.Name))
        found = [statement for statement in left if not binds(statement) or binds(statement) & names]
        left = [statement for statement in left if statement not in found]
        kept += found
    return [statement for statement in statements if statement in kept]


def imported(folder, statements):
    """Files of the folder that these import."""
    names = set()
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Import):
            names.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    for name in names:
        for path in (f"{name}.py", os.path.join(name, "__init__.py")):
            if os.path.exists(os.path.join(folder, path)):
                yield path


def main():
    folder, case = sys.argv[1:]
    statements, function = find(folder, case)
    parts = {"": [*needed(statements, function), function]}
    left = {"case.py", *imported(folder, parts[""])}
    while left:
        path = left.pop()
        parts[path] = list(parse(os.path.join(folder, path)))
        left.update(path for path in imported(folder, parts[path]) if path not in parts)
    digest = hashlib.sha256()
    for path, statements in sorted(parts.items()):
        digest.update(repr((path, [ast.dump(statement) for statement in statements])).encode())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
