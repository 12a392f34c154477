"""docs/results/three-models.md from the results of tools/three_models."""

from ledger.model_claims import CLAIMS

HEAD = """# Papers' claims on three models

<!-- Made by tools/three_models from proofs/three-models.json; not by hand. -->

See which papers' claims about [compression passes](../compression.md) hold, each checked on three models with held-out text;
the command checks them on models of yours:

    tools/three_models lab=models/millrace-lab-4m.gguf,held-out.txt,calibration.txt NAME=... NAME=...

Each pass runs with its default options, except for those that the table of figures names. A tied embedding table stays in Q8_0 on both sides. A cell has the
change of the KL divergence from the uncompressed model, and the change of the perplexity, both from the baseline to the
pass. A claim holds on a model if the divergence is at least 1 % lower; a claim of equality allows 10 % more. **A claim holds
if it holds on two models.** The divergence decides, because it compares whole distributions: the perplexity of small models
and short texts scatters by 1 %, and several rounded models have a lower one than the model itself. This rule was chosen
when some of the figures were known; the last column is the verdict if, in addition, the perplexity must not be over 1 %
higher than the baseline's. Where the pass's file takes over 10 % more bits a weight than the baseline's, there is no
verdict.
"""
NEEDED = 2
# By direction: the largest change of the divergence with which a claim holds.
LIMITS = {"better": -0.01, "equal": 0.1}
HIGHER_PERPLEXITY = 0.01
MORE_BITS = 0.1  # a larger part more than the baseline's: the two are not compared


def sides_of(claim, runs):
    """The runs of baseline and member; None where one is missing or failed."""
    sides = [runs.get(" + ".join(claim[side]), {}) for side in ("baseline", "member")]
    return sides if all(side.get("kl_divergence", 0) > 0 for side in sides) else None


def change(claim, runs):
    """(of the divergence, of the perplexity), from baseline to member; None where they cannot be compared."""
    sides = sides_of(claim, runs)
    if sides is None or sides[1]["bits_per_weight"] > (1 + MORE_BITS) * sides[0]["bits_per_weight"]:
        return None
    return tuple(sides[1][key] / sides[0][key] - 1 for key in ("kl_divergence", "perplexity"))


def holds(claim, runs, by_both=False):
    """Whether the claim holds on a model; None where it was not measured. `by_both`: the perplexity counts, too."""
    found = change(claim, runs)
    if found is None:
        return None
    return found[0] <= LIMITS[claim["direction"]] and not (by_both and found[1] > HIGHER_PERPLEXITY)


def verdict(claim, models, by_both=False):
    """yes, no, or why there is no verdict."""
    found = [holds(claim, model["runs"], by_both) for model in models]
    measured = [one for one in found if one is not None]
    if measured.count(True) >= NEEDED:
        return "yes"
    if measured.count(False) >= NEEDED:
        return "no"
    return f"open: measured on {len(measured)}"


def _percent(value):
    return f"{value:+.1%}".replace("%", " %")


def _cell(claim, runs):
    found = change(claim, runs)
    if found is None:
        sides = sides_of(claim, runs)
        return "not measured" if sides is None else "{:.2f} and {:.2f} bits".format(*(s["bits_per_weight"] for s in sides))
    return f"{_percent(found[0])}, {_percent(found[1])}: {'yes' if holds(claim, runs) else 'no'}"


def page(result):
    models = result["models"]
    lines = [HEAD]
    for name, model in models.items():
        perplexity = next((run["reference_perplexity"] for run in model["runs"].values() if "failed" not in run), None)
        itself = f" Its own perplexity is {perplexity:.3f}." if perplexity else ""
        lines.append(f"- **{name}**: {model['about'] or 'no description.'}{itself}")
    lines += ["", f"| pass | claim | baseline | {' | '.join(models)} | claim holds | by both |",
              "|---|---|---|" + "---|" * len(models) + "---|---|"]
    reasons = []
    for claim in CLAIMS:
        cells = [_cell(claim, model["runs"]) for model in models.values()]
        if all(cell == "not measured" for cell in cells):
            continue
        found, both = (verdict(claim, models.values(), by_both) for by_both in (False, True))
        lines.append(f"| {claim['name']} | {claim['says']} | {claim['beside']} | {' | '.join(cells)} | {found} | {both} |")
        if claim["why"] and any(cell.endswith("no") for cell in cells):
            reasons.append(f"- **{claim['name']}**: {claim['why']}")
    if reasons:
        lines += ["", "## Why claims fail", ""] + reasons
    lines += ["", "## Figures", "", "| model | passes | bits a weight | perplexity | KL divergence |",
              "|---|---|---:|---:|---:|"]
    for name, model in models.items():
        for key, run in model["runs"].items():
            if "failed" in run:
                lines.append(f"| {name} | `{key}` | failed | | |")
            else:
                lines.append(f"| {name} | `{key}` | {run['bits_per_weight']:.2f} | {run['perplexity']:.4f} | "
                             f"{run['kl_divergence']:.5f} |")
    return "\n".join(lines) + "\n"
