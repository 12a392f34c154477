"""The result tables: the speed of each engine, the ratio to the best peer with its spread, and the fraction of the roof."""

import json
import os
import platform

from adapters import median


def compare_case(case, results, engines):
    """A row as plain data. Ratios above 1 favour millrace, for times too."""
    row = {"suite": case.suite, "shape": case.shape, "format": case.format, "test": case.test, "unit": case.unit,
           "threads": case.threads, "kv": case.kv, "isa": case.isa, "engines": {}}
    for engine in engines:
        best = results.best(case, engine.name)
        if best is None:
            failure = results.failures.get((case, engine.name))
            row["engines"][engine.name] = {"failed": failure} if failure else {}
            continue
        switches, figures = best
        values = [figure.value for figure in figures]
        row["engines"][engine.name] = {"median": median(values), "samples": values, "switches": switches,
                                       "facts": figures[-1].facts}
    ours = row["engines"]["millrace"]
    peers = {name: entry for name, entry in row["engines"].items() if name != "millrace" and "median" in entry}
    if "median" not in ours:
        return row
    fractions = [f.facts["roof_fraction"] for f in results.best(case, "millrace")[1] if "roof_fraction" in f.facts]
    if fractions:
        row["roof_fraction"] = median(fractions)
    if not peers:
        return row
    sign = -1 if case.less_is_better else 1
    row["best_peer"] = max(peers, key=lambda name: sign * peers[name]["median"])
    theirs = peers[row["best_peer"]]
    ratio = (lambda a, b: b / a) if case.less_is_better else (lambda a, b: a / b)
    row["ratio"] = ratio(ours["median"], theirs["median"])
    rounds = [ratio(a, b) for a, b in zip(ours["samples"], theirs["samples"])]
    row["ratio_min"], row["ratio_max"] = min(rounds), max(rounds)
    return row


def _number(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _cells(row, peers):
    def engine_cell(name):
        entry = row["engines"][name]
        if "median" not in entry:
            return "failed" if "failed" in entry else ""
        return _number(entry["median"]) + (f" ({entry['switches']})" if entry["switches"] else "")

    what = row["test"] + (f", {row['kv']} KV" if row["kv"] != "f16" else "") + (f", {row['isa']}" if row["isa"] else "")
    cells = [row["suite"], f"{row['shape']} {row['format']}", what, str(row["threads"]), row["unit"], engine_cell("millrace"),
             f"{100 * row['roof_fraction']:.0f} %" if "roof_fraction" in row else ""]
    cells += [engine_cell(name) for name in peers]
    if "ratio" in row:
        cells += [f"{row['ratio']:.2f}x", f"{row['ratio_min']:.2f} to {row['ratio_max']:.2f}", row["best_peer"]]
    else:
        cells += ["", "", ""]
    return cells


def table(rows, peers):
    """An aligned Markdown table."""
    # --peer and --avx2-peer may share a name.
    peers = [name for name in dict.fromkeys(peers) if any(row["engines"][name] for row in rows)]
    lines = [["suite", "model", "test", "threads", "unit", "millrace", "roof", *peers, "ratio", "spread", "best peer"]]
    lines += [_cells(row, peers) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    out = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    out.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(out)


def failures(rows):
    """One line per engine and reason."""
    seen = {}
    for row in rows:
        for name, entry in row["engines"].items():
            if "failed" in entry:
                seen.setdefault((name, entry["failed"]), []).append(f"{row['suite']} {row['format']} {row['test']}")
    return [f"{name}: {reason} ({', '.join(tests[:4])}{' ...' if len(tests) > 4 else ''})" for (name, reason), tests in seen.items()]


def machine(roof):
    if not roof:
        return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    return f"{roof['cpu_info']}, {roof['cores']} cores, {roof['memory_bytes'] / 2**30:.0f} GiB, {roof['isa']}"


def roof_lines(roofs):
    """The measured roofs before and after, one line each."""
    out = []
    for when, roof in roofs:
        for row in roof.get("roofs", []):
            bf16 = f"bf16 {row['bf16_gflop_per_s']:.0f} GFLOP/s, " if row["bf16_gflop_per_s"] else ""
            out.append(f"{when}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}: memory {row['read_gb_per_s']:.1f} GB/s, "
                       f"L3 {row['l3_gb_per_s']:.0f}, L2 {row['l2_gb_per_s']:.0f}; f32 {row['f32_gflop_per_s']:.0f} GFLOP/s, {bf16}"
                       f"int8 {row['int8_gop_per_s']:.0f} GOP/s")
    return out


def json_lines(rows, facts):
    return "\n".join(json.dumps(dict(row, **facts)) for row in rows)
