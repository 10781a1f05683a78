// RUN: not tilewright-opt %s --split-input-fil 2>&1 | filecheck %s --check-prefix=FLAG
// FLAG: tilewright-opt: error: `--split-input-fil` is neither a flag nor a pass; did you mean `--split-input-file`?

// RUN: not tilewright-opt %s --verify-each=often 2>&1 | filecheck %s --check-prefix=BOOLEAN
// BOOLEAN: tilewright-opt: error: argument --verify-each: expected true or false, found `often`

// RUN: not tilewright-opt %t.nothing 2>&1 | filecheck %s --check-prefix=MISSING
// MISSING: tilewright-opt: error: cannot open input file `{{.*}}.nothing`: No such file or directory

// RUN: not tilewright-opt %s %s 2>&1 | filecheck %s --check-prefix=TWO
// TWO: tilewright-opt: error: unexpected argument `{{.*}}command-line-invalid.mlir`

// RUN: not tilewright-opt %s -o %t.folder/that/is/not/there 2>&1 | filecheck %s --check-prefix=OUTPUT
// OUTPUT: tilewright-opt: error: cannot write output file `{{.*}}there`: No such file or directory

// RUN: not tilewright-opt %s --run-reproducer 2>&1 | filecheck %s --check-prefix=REPRODUCER
// REPRODUCER: <unknown>:0: error: `--run-reproducer`: the file holds no `mlir_reproducer` section with a `pipeline`
