// RUN: not tilewright-opt %s --pass-pipeline='builtin.module(simplify-bodies{generalise=true})' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: pipeline column 16: `simplify-bodies` has no option `generalise`; its options are: generalize

// RUN: not tilewright-opt %s --simplify-bodies=generalize=perhaps 2>&1 | filecheck %s --check-prefix=VALUE
// VALUE: error: pipeline column 16: `simplify-bodies{generalize}`: expected true|false, found `perhaps`

// RUN: not tilewright-opt %s --simplify-bodies='generalize=true generalize=false' 2>&1 | filecheck %s --check-prefix=TWICE
// TWICE: option `generalize` is given twice; give it once

// RUN: not tilewright-opt %s --canonicalize=top-up=true 2>&1 | filecheck %s --check-prefix=UPSTREAM
// UPSTREAM: error: `--canonicalize`: <Pass-Options-Parser>: no such option top-up; failed to add `canonicalize` with options `top-up=true`
