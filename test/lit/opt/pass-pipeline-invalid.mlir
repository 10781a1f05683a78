// RUN: not tilewright-opt %s --pass-pipeline='cse' 2>&1 | filecheck %s --check-prefix=ANCHOR
// ANCHOR: error: pipeline column 1: expected a pass pipeline wrapped with the operation type that it is anchored on, e.g. 'builtin.module(cse)'

// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(cse' 2>&1 | filecheck %s --check-prefix=OPEN
// OPEN: error: pipeline column 19: expected `,` or `)`, found the end
// OPEN-NEXT: {{^}}  builtin.module(cse{{$}}
// OPEN-NEXT: {{^ {20}\^$}}

// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(cse) x' 2>&1 | filecheck %s --check-prefix=REST
// REST: error: pipeline column 21: expected the end of the pipeline, found `x`

// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(cse,,cse)' 2>&1 | filecheck %s --check-prefix=EMPTY
// EMPTY: error: pipeline column 20: expected the name of a pass or of an operation, found `,cse)`

// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(cse{a=[1)' 2>&1 | filecheck %s --check-prefix=BRACKET
// BRACKET: error: pipeline column 19: `{` is not closed; expected a closing `}`

// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(cse,simplify-bodie)' 2>&1 | filecheck %s --check-prefix=NAME
// NAME: error: pipeline column 20: `simplify-bodie` is no pass of tilewright, of torch-mlir or of MLIR; did you mean `simplify-bodies`?
// NAME-NEXT: builtin.module(cse,simplify-bodie)
// NAME-NEXT: {{^ {21}\^$}}

// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(func.func(cse,simplify-bodies))' 2>&1 | filecheck %s --check-prefix=PLACE
// PLACE: error: pipeline column 30: `simplify-bodies` runs on `builtin.module`, it was placed on `func.func`; nest it: builtin.module(simplify-bodies)

// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(llvm-request-c-wrappers)' 2>&1 | filecheck %s --check-prefix=UPSTREAM
// UPSTREAM: error: pipeline column 16: Can't add pass 'LLVMRequestCWrappersPass' restricted to 'func.func'

// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(func.func{a=1}(cse))' 2>&1 | filecheck %s --check-prefix=OPTIONS
// OPTIONS: error: pipeline column 16: `func.func` is an anchor; options belong to passes

// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(cse)' --cse 2>&1 | filecheck %s --check-prefix=BOTH
// BOTH: error: `--pass-pipeline` cannot be used with single pass flags; move `cse` into it

// The pipeline does not fit the input: it is anchored on something else.
// RUN: not tilewright-opt %s --pass-pipeline='func.func(cse)' 2>&1 | filecheck %s --check-prefix=MISFIT
// MISFIT: error: the pipeline is anchored on `func.func`, the operation is `builtin.module`; anchor it as builtin.module(...)
func.func @f() { return }
