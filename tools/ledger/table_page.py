"""docs/compression-table.md from the results of tools/compression_table."""

from ledger.table_rows import FORMATS, PLAIN

HEAD = """# Compression passes side by side

<!-- Made by tools/compression_table from docs/results/compression/; not by hand. -->

Every pass of [compression](compression.md) on one model: the file is written, loaded again and compared with the model
it came from. Bits and bytes are those of all tensors, embeddings and norms included. Speeds are of one stream on one
thread of the machine named below, as a multiple of the model's own in the same run (prompt of 128 tokens, 32 generated
ones, median of five rounds in turns); of models as small as these they say little about large ones, whose weights do not
fit a cache.

**F** marks the rows on the front: no other row of the model's tables has at most as many bytes, at most that perplexity
and, within 5 %, at least that speed.

    tools/compression_table                          continues where it was stopped; --help has more
    tools/compression_table model.gguf --text held-out.txt --calibrate other.txt
"""
TITLES = {"weights": "Weights", "inputs": "Weights and inputs", "zeros": "Half of the weights zero",
          "structure": "Fewer layers, columns or dims", "factors": "Factors"}
NOTES = {"zeros": "Zeros stay in dense matrices of the model's own format, so neither bytes nor speed change here; "
                  "[compression.md](compression.md) says what sparse kernels need.",
         "inputs": "The inputs of the matrices are rounded too. That costs time here and saves none."}
# A row that is this much slower is slower.
SPEED_TOLERANCE = 0.05
# Relative differences of the perplexity below which two rows are alike.
ALIKE = 0.001
CLAIMS = {"GPTQ": "gptq:format={}", "AWQ": "awq:format={}", "QuaRot": "rotate:format= + gptq:format={}"}


def speed(row, name="decode"):
    return row[name]["value"] / row[name]["reference"]


def front(rows):
    """The names of the rows that no other one dominates."""
    def dominates(a, b):
        at_least = (a["bytes"] <= b["bytes"] and a["perplexity"] <= b["perplexity"] and
                    speed(a) >= speed(b) * (1 - SPEED_TOLERANCE))
        return at_least and (a["bytes"] < b["bytes"] or a["perplexity"] < b["perplexity"])
    return {row["name"] for row in rows if not any(dominates(other, row) for other in rows)}


def _itself(row):
    """The model that was compressed, as a row."""
    same = {"value": 1, "reference": 1}
    return {"name": "the model itself", "bytes": row["input_bytes"], "perplexity": row["reference_perplexity"],
            "decode": same}


def _line(row, plain, best):
    beside = ""
    if plain and row is not plain:
        beside = f"{row['perplexity'] / plain['perplexity'] - 1:+.1%}".replace("%", " %")
    marks = ("F" if row["name"] in best else "") + (" *" if row.get("busy") else "") + (" †" if row["notes"] else "")
    cells = [f"`{row['name']}`", f"{row['bits_per_weight']:.2f}", f"{row['bytes']:,}", f"{row['perplexity']:.4f}", beside,
             f"{row['kl_divergence']:.5f}", f"{100 * row['same_top']:.2f}", f"{speed(row, 'prefill'):.2f}",
             f"{speed(row):.2f}", f"{row['decode']['value']:,.0f}", marks.strip()]
    return f"| {' | '.join(cells)} |"


def _table(rows, plain, best):
    beside = "beside plain rounding" if plain else "beside"
    return [f"| passes | bits | bytes | perplexity | {beside} | KL | same top, % | prefill, × | decode, × | "
            "decode, tokens/s | |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"] + [
                _line(row, plain, best) for row in sorted(rows, key=lambda row: row["perplexity"])]


def _plain(rows, bits):
    name = f"{PLAIN},format={FORMATS.get(bits)}"
    return next((row for row in rows if row["name"] == name), None)


def _verdict(name, row, plain):
    change = row["perplexity"] / plain["perplexity"] - 1
    word = "alike" if abs(change) < ALIKE else "better" if change < 0 else "worse"
    return f"| {name} | `{row['name']}` | {row['perplexity']:.4f} | {plain['perplexity']:.4f} | {word} |"


def _claims(rows):
    """Whether the order of the papers holds at 3 bits."""
    plain, by_name = _plain(rows, 3), {row["name"]: row for row in rows}
    if plain is None:
        return []
    candidates = {name: by_name.get(text.format(FORMATS[3])) for name, text in CLAIMS.items()}
    candidates["SqueezeLLM"] = by_name.get(f"squeezellm:bits=3,format={FORMATS[3]}")
    lines = [_verdict(name, row, plain) for name, row in candidates.items() if row]
    if not lines:
        return []
    return ["", "### Three bits: does the order of the papers hold?", "",
            "All of these papers have lower perplexities than plain rounding at the same bits, on models of billions. "
            "A SqueezeLLM file has no scales of blocks but a table for each row, so its bits differ.", "",
            "| paper | passes | perplexity | plain rounding | it is |", "|---|---|---:|---:|---|", *lines]


def _model(result):
    done = [row for row in result["rows"] if "failed" not in row]
    if not done:
        return []
    first, machine, settings = done[0], result["machine"], result["settings"]
    best = front([_itself(first), *done])
    lines = ["", f"## {result['model']}", "",
             f"Perplexity of the model itself: {first['reference_perplexity']:.4f}, {first['input_bytes']:,} bytes. "
             f"{settings['windows']} windows of {settings['window']} tokens of "
             + ("held-out exercises" if settings["texts"] == "exercises" else "a text")
             + ", calibrated with as many of others. "
             f"{machine['cpu']} ({machine['isa']}), one thread."]
    for group, title in TITLES.items():
        of_group = [row for row in done if row["group"] == group]
        for bits in dict.fromkeys(row["bits"] for row in of_group):
            rows = [row for row in of_group if row["bits"] == bits]
            lines += ["", f"### {title}" + (f", {bits} bits" if bits else ""), ""]
            if group in NOTES:
                lines += [NOTES[group], ""]
            lines += _table(rows, _plain(done, bits), best)
        if group == "weights":
            lines += _claims(done)
    if any(row.get("busy") for row in done):
        lines += ["", "\\* timed while other programs used more than a tenth of the machine."]
    if any(row["notes"] for row in done):
        lines += ["", "† some matrices have another format, because their rows do not fit this one."]
    failed = [row for row in result["rows"] if "failed" in row]
    if failed:
        lines += ["", "Not possible with this model:", ""]
        lines += [f"- `{row['name']}`: {row['failed'].partition(': ')[2]}" for row in failed]
    return lines


def page(results):
    lines = [HEAD.rstrip("\n")]
    for result in results:
        lines += _model(result)
    return "\n".join(lines) + "\n"
