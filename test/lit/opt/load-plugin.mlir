// A plugin's passes are passes: as flags, in pipelines beside others, with options; what goes wrong names the plugin.
// RUN: tilewright-opt %s --load-plugin=%S/Inputs/plugin.py --greet | filecheck %s --check-prefix=WORLD
// RUN: tilewright-opt %s --load-plugin %S/Inputs/plugin.py --pass-pipeline='builtin.module(canonicalize,greet{name-of=MLIR},cse)' | filecheck %s --check-prefix=MLIR
// RUN: tilewright-opt --load-plugin=%S/Inputs/plugin.py --list-passes | filecheck %s --check-prefix=LIST
// RUN: not tilewright-opt %s --load-plugin=%S/Inputs/plugin.py --greet=name-of=nobody 2>&1 | filecheck %s --check-prefix=REFUSED
// RUN: not tilewright-opt %s --greet 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not tilewright-opt %s --load-plugin=%S/Inputs/absent.py --greet 2>&1 | filecheck %s --check-prefix=ABSENT
// RUN: not tilewright-opt %s --load-plugin=json --greet 2>&1 | filecheck %s --check-prefix=NONE

// WORLD: module attributes {example.hello = "world"}
// MLIR: module attributes {example.hello = "MLIR"}
// LIST: greet  (on builtin.module)
// LIST-NEXT: A plugin with one pass.
// LIST-NEXT: name-of=<str>  (default world)
// REFUSED: `greet`: expected a name, found `nobody`; name somebody
// UNKNOWN: `--greet` is neither a flag nor a pass
// ABSENT: plugin `absent.py`: there is no file
// NONE: plugin `json`: it has no function `register(plugin)`
module {}
