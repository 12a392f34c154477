"""docs/compression-table.md from the results of tools/compression_table."""

from ledger.table_rows import FORMATS, NARROW, PLAIN

HEAD = """# Compression passes side by side

<!-- Made by tools/compression_table from proofs/compression/; not by hand. -->

Choose a compression pass by what it costs and brings. This measures the passes whose rows are missing here:

    tools/compression_table

Every pass of [compression](compression.md), model by model: the file is written, loaded again and compared with the
model it was made from. Bits and bytes are those of all tensors, embeddings and norms included; embeddings have the format of
the row (`--table same`) unless it says otherwise. Speeds are of one stream on one
thread of the machine named below, as a multiple of the model's own in the same run (prompt of 128 tokens, 32 generated
ones, median of five rounds in turns); of models as small as these they say little about large ones, whose weights do
not fit a cache. The lab model ships in Q8_0, so its 8-bit rows show only that nothing else changes.

Small models are harder to compress than large ones: few weights are redundant, embeddings are a large part, and rows are
short.

Both texts are short: differences of the perplexity below about 1 % mean little, and some rows are below the model's own.
The KL divergence, of whole distributions, is the steadier figure.

**F** marks the rows on the front: no other row of the model's tables has at most as many bytes, at most that perplexity
and, within 5 %, at least that speed.

To measure a model of yours:

    tools/compression_table model.gguf --text held-out.txt --calibrate other.txt
"""
TITLES = {"weights": "Weights", "layers": "Weights, embeddings and head in 8 bits", "inputs": "Weights and inputs",
          "zeros": "Half of the weights zero", "structure": "Fewer layers, columns or dims", "factors": "Factors"}
NOTES = {"layers": "The papers leave embeddings and head alone. A small model's are a large part of it.",
         "zeros": "Zeros stay in dense matrices of the model's own format, so neither bytes nor speed change, but in the rows "
                  "of sparse formats: [compression.md](compression.md) says when zeros pay.",
         "inputs": "The inputs of the matrices are rounded too. That shows what it costs in quality; products are int8 "
                   "with or without."}
# A row that is this much slower is slower.
SPEED_TOLERANCE = 0.05
# Relative differences of the perplexity below which two rows are alike.
ALIKE = 0.001
LAYERS = ", embeddings q8_0"
CLAIMS = {"GPTQ": "gptq:fit=plain,format={}", "AWQ": "awq:fit=plain,format={}",
          "QuaRot": "rotate:format= + gptq:fit=plain,format={}",
          "SqueezeLLM": "squeezellm:bits=3,format={}",
          "SqueezeLLM, 0.5 % sparse": "squeezellm:sparse=0.005,bits=3,format={}",
          "plain rounding with a scale for each row": "squeezellm:table=even,bits=3,format={}"}


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
    cells = [f"`{row['name']}`", f"{row['bits_per_weight']:.2f}", f"{row['bytes']:,}", f"{row['perplexity']:.4f}",
             beside, f"{row['kl_divergence']:.5f}", f"{100 * row['same_top']:.2f}", f"{speed(row, 'prefill'):.2f}",
             f"{speed(row):.2f}", f"{row['decode']['value']:,.0f}", marks.strip()]
    return f"| {' | '.join(cells)} |"


def _table(rows, plain, best):
    beside = "beside plain rounding" if plain else "beside"
    return [f"| passes | bits | bytes | perplexity | {beside} | KL | same top, % | prefill, × | decode, × | "
            "decode, tokens/s | |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"] + [
                _line(row, plain, best) for row in sorted(rows, key=lambda row: row["perplexity"])]


def _plain(rows, bits, group="weights"):
    names = [f"{PLAIN},format={formats.get(bits)}" + LAYERS * (group == "layers") for formats in (FORMATS, NARROW)]
    return next((row for row in rows if row["name"] in names), None)


def _verdict(row, plain):
    change = row["perplexity"] / plain["perplexity"] - 1
    word = "alike" if abs(change) < ALIKE else "better" if change < 0 else "worse"
    return f"{row['perplexity']:.4f}, {row['bits_per_weight']:.2f} bits: {word}"


def _claims(rows):
    """Whether the order of the papers holds at 3 bits."""
    by_name = {row["name"]: row for row in rows}
    lines = []
    for name, text in CLAIMS.items():
        cells = []
        for group in ("layers", "weights"):
            names = [text.format(formats[3]) + LAYERS * (group == "layers") for formats in (FORMATS, NARROW)]
            row = next((by_name[one] for one in names if one in by_name), None)
            plain = _plain(rows, 3, group)
            cells.append(_verdict(row, plain) if row and plain else "")
        if any(cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    if not lines:
        return []
    by_rows = any(line.startswith("| plain rounding with") for line in lines)
    plains = [_plain(rows, 3, group) for group in ("layers", "weights")]
    shown = [f"{plain['perplexity']:.4f}, {plain['bits_per_weight']:.2f} bits" if plain else "" for plain in plains]
    return ["", "### Three bits: does the order of the papers hold?", "",
            "All of these papers have lower perplexities than plain rounding at the same bits, on models of billions. "
            "Here, with the embeddings in 8 bits and rounded like the rest:", "",
            "| | embeddings in 8 bits | all in 3 bits |", "|---|---|---|", f"| plain rounding | {' | '.join(shown)} |",
            *lines, "",
            "SqueezeLLM has one table for each row, where plain rounding has a scale for each 16 weights here. The paper "
            "compares with plain rounding that has one scale for each row" + (", the last line." if by_rows else ".")]


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
    if result.get("about"):
        lines += ["", result["about"]]
    for group, title in TITLES.items():
        of_group = [row for row in done if row["group"] == group]
        for bits in dict.fromkeys(row["bits"] for row in of_group):
            rows = [row for row in of_group if row["bits"] == bits]
            lines += ["", f"### {title}" + (f", {bits} bits" if bits else ""), ""]
            if group in NOTES:
                lines += [NOTES[group], ""]
            lines += _table(rows, _plain(done, bits, group), best)
        if group == "layers":
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


def _beside_cell(row, plain):
    """The perplexity beside plain rounding, or beside that of the model itself where there is none."""
    if row is None:
        return ""
    reference = plain["perplexity"] if plain else row["reference_perplexity"]
    mark = " †" if row["notes"] else ""
    if row is plain:
        return f"{row['perplexity'] / row['reference_perplexity'] - 1:+.1%} of its own".replace("%", " %") + mark
    return f"{row['perplexity'] / reference - 1:+.1%}".replace("%", " %") + mark


def _by_name(rows, group, bits):
    """Those of the group by name. A model of narrow rows has formats of its own; its rows are named as the others'."""
    narrow = any(name in row["name"] for row in rows for name in (NARROW[2], NARROW[3]))
    named = {}
    for row in rows:
        if (row["group"], row["bits"]) != (group, bits):
            continue
        name = row["name"].replace("=" + NARROW[bits], "=" + FORMATS[bits]) if narrow and bits else row["name"]
        named.setdefault(name, row)
    return named


def _side_by_side(results):
    """A table for each number of bits with a column for each model."""
    models = [(result["model"], [row for row in result["rows"] if "failed" not in row]) for result in results]
    models = [(name, rows) for name, rows in models if rows]
    if len(models) < 2:
        return []
    lines = ["", "## The models side by side", "",
             "Perplexity beside plain rounding at the same bits, whose own line is beside the model itself; of tables without "
             "plain rounding, beside the model itself. In the order of the first model; below are bits, divergence and speed. "
             f"Models whose rows are no multiples of 256 have {NARROW[2]}, {NARROW[3]} and {NARROW[4]} in place of "
             f"{FORMATS[2]}, {FORMATS[3]} and {FORMATS[4]}."]
    groups = dict.fromkeys((row["group"], row["bits"]) for _, rows in models for row in rows)
    for group, bits in sorted(groups, key=lambda one: (list(TITLES).index(one[0]), one[1] or 0)):
        found = [_by_name(rows, group, bits) for _, rows in models]
        plains = [_plain(rows, bits, group) for _, rows in models]
        first = found[0]
        names = sorted(first, key=lambda name: first[name]["perplexity"])
        names += [name for other in found[1:] for name in other if name not in first]
        lines += ["", f"### {TITLES[group]}" + (f", {bits} bits" if bits else "") + ", side by side", "",
                  f"| passes | {' | '.join(name for name, _ in models)} |", "|---|" + "---:|" * len(models)]
        for name in dict.fromkeys(names):
            cells = [_beside_cell(of.get(name), plain) for of, plain in zip(found, plains)]
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
    if any(row["notes"] for _, rows in models for row in rows):
        lines += ["", "† some matrices have another format, because their rows do not fit this one."]
    return lines


def page(results):
    lines = [HEAD.rstrip("\n")] + _side_by_side(results)
    for result in results:
        lines += _model(result)
    return "\n".join(lines) + "\n"
