"""Runs ONNX's own backend tests through tilewright and tabulates what passes, fails and is refused.

    python bench/onnx_conformance.py [--kind node simple] [--only REGEX] [--jobs N] [--timeout S] [--keep] [--out FILE]

Each test runs in a worker process, so that a crash or a hang costs that test alone. A test that our compiler
refuses with UnsupportedError counts as excluded, under the reason it gave; everything else that is not the expected
result counts as failed. The exit status is 1 when fewer node tests pass than the bar, or any result is wrong beyond the known ones.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter, defaultdict
from pathlib import Path

BAR = 0.80
"""Share of all node tests that must pass."""

RULES = [
    ("strings", r"holds strings|constant of strings|StringSplit|StringConcat|StringNormalizer|RegexFullMatch|STRING",
     "strings are no tensors a kernel computes on"),
    ("training", r"Adam |Adagrad |Momentum |Gradient |training mode", "training operators and random dropout"),
    ("data-dependent shape", r"shape of its result depends on data|must be known when compiling",
     "shapes are static; the result's shape depends on the data"),
    ("random", r"Bernoulli|RandomUniform|RandomNormal|Multinomial", "draws random numbers"),
    ("images", r"ImageDecoder", "decodes image files"),
    ("text features", r"TfIdfVectorizer", "counts n-grams of text"),
    ("trees and labels", r"TreeEnsemble|LabelEncoder|ArrayFeatureExtractor|Binarizer", "classical ML operators"),
    ("sequences and optionals", r"sequence|optional", "an optional without a value, or a sequence of unknown length"),
]  # fmt: skip
"""Name, pattern over the refusal's text, and what it means; the first that matches names the exclusion."""


KNOWN = {
    "node/test_attention_4d_causal_fp16": "one unit in the last place of f16: intermediate results are rounded at other places",
    "node/test_attention_4d_causal_fp16_expanded": "one unit in the last place of f16: intermediate results are rounded at other places",
    "node/test_resize_downsample_scales_cubic_align_corners": "expected values do not align the last corners, as documented",
    "node/test_resize_downsample_scales_linear_align_corners": "expected values do not align the last corners, as documented",
}
"""Failures where the expected values are the less exact ones; listed as failed, but no reason for status 1."""


def load_tests(kinds: list[str]) -> dict[str, object]:
    """Test cases by name; those of kind `real` need downloads and are not run."""
    warnings.filterwarnings("ignore")
    from onnx.backend.test.loader import load_model_tests

    return {f"{kind}/{case.name}": case for kind in kinds for case in load_model_tests(kind=kind)}


def run_case(case) -> None:
    """Raises AssertionError for a wrong result."""
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.runner import Runner

    from tilewright import onnx_backend

    model = case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")
    data = case.data_sets if case.data_sets is not None else _stored_data(Path(case.model_dir), model)

    def plain(value):
        return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value

    def compare(expected, found):
        """Lists by their members, and everything else as ONNX's runner does."""
        assert len(expected) == len(found), f"expected {len(expected)} values, found {len(found)}"
        for left, right in zip(expected, found):
            if isinstance(right, list):
                compare(list(left), right)
            else:
                Runner.assert_similar_outputs([left], [right], rtol=case.rtol, atol=case.atol)

    prepared = None
    for inputs, expected in data:
        if prepared is None:
            prepared = onnx_backend.prepare(model)
        outputs = prepared.run([plain(value) for value in inputs])
        compare([plain(value) for value in expected], list(outputs))


def _stored_data(folder: Path, model):
    """The data sets that lie beside a stored model, as protobuf files."""
    import onnx
    from onnx import numpy_helper

    readers = {
        "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    }
    sets = []
    for place in sorted(folder.glob("test_data_set_*")):
        pair = []
        for what, infos in (("input", model.graph.input), ("output", model.graph.output)):
            values = []
            for index, info in enumerate(infos):
                file = place / f"{what}_{index}.pb"
                if file.exists():
                    proto, read = readers[info.type.WhichOneof("value")]
                    values.append(read(proto.FromString(file.read_bytes())))
            pair.append(values)
        sets.append(tuple(pair))
    return sets


def worker(kinds: list[str], names_file: str) -> None:
    """Runs the tests named in a file, one JSON line before and one after each."""
    tests = load_tests(kinds)
    from tilewright.compiler.errors import UnsupportedError

    for name in Path(names_file).read_text().split():
        print(json.dumps({"start": name}), flush=True)
        start = time.perf_counter()
        try:
            run_case(tests[name])
            result: dict = {"status": "passed"}
        except UnsupportedError as error:
            result = {"status": "excluded", "reason": "; ".join(str(op) for op in error.operators)[:600]}
        except AssertionError as error:
            result = {"status": "failed", "kind": "wrong result", "reason": str(error).strip()[:600]}
        except Exception as error:
            result = {"status": "failed", "kind": type(error).__name__, "reason": str(error)[:600]}
        result["seconds"] = round(time.perf_counter() - start, 3)
        print(json.dumps({"name": name, "result": result}), flush=True)


class Pool:
    """Workers over one list of tests; a worker that dies or hangs is replaced and its test recorded."""

    def __init__(self, kinds: list[str], names: list[str], jobs: int, timeout: float, save):
        self.kinds, self.timeout, self.save = kinds, timeout, save
        self.shares = [names[i::jobs] for i in range(jobs)]
        self.results: dict[str, dict] = {}
        self.total = len(names)

    def run(self) -> dict[str, dict]:
        threads = [threading.Thread(target=self._share, args=(share,)) for share in self.shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.results

    def _share(self, names: list[str]) -> None:
        left = list(names)
        while left:
            self._round(left)
            left = [name for name in left if name not in self.results]

    def _round(self, names: list[str]) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(names))
            file.flush()
            command = [sys.executable, "-W", "ignore", __file__, "--worker", file.name, "--kind", *self.kinds]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            assert process.stdout is not None
            current, timer = None, None
            expired = threading.Event()
            for line in process.stdout:
                if not line.startswith("{"):
                    continue
                message = json.loads(line)
                if timer:
                    timer.cancel()
                    timer = None
                if "start" in message:
                    current = message["start"]
                    timer = threading.Timer(self.timeout, lambda: (expired.set(), process.kill()))
                    timer.start()
                else:
                    self.results[message["name"]] = message["result"]
                    current = None
                    self._progress()
            if timer:
                timer.cancel()
            code = process.wait()
        if current is not None:
            kind = "timeout" if expired.is_set() else "crash"
            reason = f"over {self.timeout} s" if expired.is_set() else f"the process ended with status {code}"
            self.results[current] = {"status": "failed", "kind": kind, "reason": reason}
        elif code and not any(name in self.results for name in names):
            raise SystemExit(f"a worker ended with status {code} before its first test")

    def _progress(self) -> None:
        done = len(self.results)
        if done % 25 == 0 or done == self.total:
            self.save(self.results)
            print(f"\r{done}/{self.total}", end="", file=sys.stderr, flush=True)


def exclusion(reason: str) -> str:
    """The rule that a refusal falls under."""
    return next((name for name, pattern, _ in RULES if re.search(pattern, reason)), "no lowering")


def summarise(results: dict[str, dict]) -> dict:
    """Counts per kind of test and per exclusion rule, and every failure by name."""
    table: dict[str, Counter] = defaultdict(Counter)
    rules: Counter = Counter()
    for name, result in results.items():
        kind = name.split("/")[0]
        table[kind][result["status"]] += 1
        if result["status"] == "excluded":
            result["rule"] = exclusion(result["reason"])
            rules[result["rule"]] += 1
    failures = {
        n: f"{r['kind']}: {f'({KNOWN[n]}) ' if n in KNOWN else ''}{r['reason']}"
        for n, r in results.items()
        if r["status"] == "failed"
    }
    meanings = {name: meaning for name, _, meaning in RULES}
    return {
        "kinds": {k: dict(c) | {"total": sum(c.values())} for k, c in table.items()},
        "exclusions": {n: {"tests": c, "meaning": meanings.get(n, "an operator has no lowering")} for n, c in
                       rules.most_common()},
        "failures": dict(sorted(failures.items())),
    }  # fmt: skip


def show(summary: dict) -> None:
    print(f"\n{'kind':<20}{'total':>7}{'passed':>8}{'failed':>8}{'excluded':>10}{'share':>8}")
    for kind, row in summary["kinds"].items():
        cells = [row.get(key, 0) for key in ("total", "passed", "failed", "excluded")]
        print(f"{kind:<20}{cells[0]:>7}{cells[1]:>8}{cells[2]:>8}{cells[3]:>10}{cells[1] / cells[0]:>8.1%}")
    print("\nexcluded because")
    for name, row in summary["exclusions"].items():
        print(f"  {row['tests']:>4}  {name}: {row['meaning']}")
    if summary["failures"]:
        print("\nfailed")
        for name, reason in summary["failures"].items():
            print(f"  {name}: {' '.join(reason.split())[:160]}")


def main() -> int:
    import onnx

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", nargs="+", default=["node", "simple"])
    parser.add_argument("--only", default="", help="run the tests whose name matches this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds per test")
    parser.add_argument("--out", default=str(Path(__file__).parent / "results" / "onnx_conformance.json"))
    parser.add_argument(
        "--keep", action="store_true", help="keep the passes that the output file has already"
    )
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.kind, options.worker)
        return 0
    names = [name for name in load_tests(options.kind) if re.search(options.only, name)]
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(out.read_text())["tests"] if options.keep and out.exists() else {}
    before = {
        name: result for name, result in before.items() if result["status"] == "passed" and name in names
    }
    names = [name for name in names if name not in before]
    start = time.perf_counter()

    def save(results: dict[str, dict]) -> dict:
        everything = before | results
        summary = summarise(everything)
        summary["onnx"], summary["seconds"] = onnx.__version__, round(time.perf_counter() - start, 1)
        ordered = {name: everything[name] for name in sorted(everything)}
        out.write_text(json.dumps(summary | {"tests": ordered}, indent=1) + "\n")
        return summary

    results = Pool(options.kind, names, max(1, min(options.jobs, len(names))), options.timeout, save).run()
    summary = save(results)
    show(summary)
    print(f"\nwritten to {out}")
    node = summary["kinds"].get("node", {"total": 0})
    wrong = [
        name
        for name, reason in summary["failures"].items()
        if reason.startswith("wrong result") and name not in KNOWN
    ]
    return int(bool(wrong) or node.get("passed", 0) < BAR * node["total"])


if __name__ == "__main__":
    sys.exit(main())
