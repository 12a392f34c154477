"""Figures: picked out of what commands print, compared, and given a direction: better, equal or worse than the baseline,
or unclear where the rounds of a timed figure disagree."""

import statistics

from ledger.entries import LedgerError

# A difference is real beyond this fraction of the baseline, unless the figure has its own `tolerance`.
TIMED_TOLERANCE = 0.05
# Timed figures on another machine, or in a short run, contradict only beyond this.
TIMED_SMOKE_TOLERANCE = 0.15


def _inside(value, key):
    if not isinstance(value, list):
        return value[key]
    if not key.startswith("["):
        return value[int(key)]
    name, _, text = key.strip("[]").partition("=")
    return next((element for element in value if str(element[name]) == text), None)


def pick(outputs, path):
    """The value at "STEP:key.0.[key=text].key" in the commands' outputs: [key=text] is the first element of an array that
    has this. Without STEP, in the first output."""
    step, _, keys = path.rpartition(":")
    try:
        value = outputs[int(step or 0)]
        for key in filter(None, keys.split(".")):
            value = _inside(value, key)
        return value
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise LedgerError(f"no '{path}' in the output") from error


def timed_steps(entries):
    """The commands whose output timed figures come from, by their place."""
    paths = [figure[key] for figure in entries.values() if figure.get("timed")
             for key in ("path", "per", "baseline_path", "member_path") if key in figure]
    return {int(path.rpartition(":")[0] or 0) for path in paths}


def _number(outputs, figure, side):
    path = figure.get(f"{side}_path", figure["path"])
    value = pick(outputs, path)
    if not isinstance(value, (int, float)):
        raise LedgerError(f"'{path}' is not a number: {value!r:.60}")
    if figure.get("per"):
        divisor = pick(outputs, figure["per"])
        if not isinstance(divisor, (int, float)) or not divisor:
            raise LedgerError(f"'{figure['per']}' is no number to divide by: {divisor!r:.60}")
        value = value / divisor
    return value * figure.get("times", 1)


def _share_equal(expected, found):
    """1 where both are the same; of lists the share of equal elements. Two sides with nothing would be the same whatever
    the member does. Errors: LedgerError."""
    if all(value is None or value in ([], {}, "") for value in (expected, found)):
        raise LedgerError(f"both sides are {found!r}")
    if isinstance(expected, list) and isinstance(found, list):
        return sum(a == b for a, b in zip(expected, found)) / max(len(expected), len(found))
    return float(expected == found)


def _one_round(figure, baseline, member):
    if figure.get("same"):
        return 1.0, _share_equal(pick(baseline, figure["path"]), pick(member, figure["path"]))
    return _number(baseline, figure, "baseline"), _number(member, figure, "member")


def difference(figure, baseline, member):
    """Relative to the baseline, or absolute beside a baseline of zero; above zero is better."""
    change = (member - baseline) / abs(baseline) if baseline else member - baseline
    return change if figure["better"] == "higher" else -change


def direction_of(figure, rounds, short=False):
    """`rounds`: pairs. Of timed figures all rounds must agree and their median must exceed the tolerance; unclear: their
    median exceeds it but they disagree, or they exceed it in both directions."""
    changes = [difference(figure, baseline, member) for baseline, member in rounds]
    middle = statistics.median(changes)
    tolerance = max(figure.get("tolerance", 0), figure.get("smoke_tolerance", 0) if short else 0)
    if figure.get("timed"):
        tolerance = max(tolerance, TIMED_SMOKE_TOLERANCE if short else TIMED_TOLERANCE)
        if min(changes) < -tolerance and max(changes) > tolerance:
            return "unclear"
    if abs(middle) <= tolerance:
        return "equal"
    if min(changes) < 0 < max(changes):
        return "unclear"
    return "better" if middle > 0 else "worse"


def measured(name, figure, rounds, short=False):
    """A figure's part of the result. `rounds`: pairs of outputs of the baseline and of the member."""
    try:
        pairs = [_one_round(figure, baseline, member) for baseline, member in rounds]
    except LedgerError as error:
        raise LedgerError(f"figure '{name}': {error}") from error
    return _figure(name, figure, pairs, short)


def _figure(name, figure, pairs, short=False):
    out = {"name": name, "kind": figure["kind"], "better": figure["better"]}
    for side, values in zip(("baseline", "member"), zip(*pairs)):
        out[side] = {"median": statistics.median(values), "low": min(values), "high": max(values)}
        if figure.get("timed"):
            out[side]["rounds"] = list(values)
    out["rounds"] = len(pairs)
    out["timed"] = bool(figure.get("timed"))
    out["change"] = statistics.median([difference(figure, baseline, member) for baseline, member in pairs])
    out["direction"] = direction_of(figure, pairs, short)
    return out


def disagreements(figure, stored):
    """What a stored figure says otherwise than the values that it was made of, as texts."""
    try:
        sides = [stored[side]["rounds"] if figure.get("timed") else [stored[side]["median"]] * stored["rounds"]
                 for side in ("baseline", "member")]
        made = _figure(stored["name"], figure, list(zip(*sides, strict=True)))
    except (KeyError, TypeError, ValueError, statistics.StatisticsError) as error:
        return [f"{stored.get('name')}: no values of all rounds ({error})"]
    return [f"{made['name']}: {key} is stored as {stored.get(key)!r}, but its values make it {value!r}"
            for key, value in made.items() if stored.get(key) != value]


def contradicts(figure, stored, short):
    """Whether a short run denies the stored direction of a figure. Both are results of measured(). What is unclear denies
    nothing. An untimed difference must not vanish: with a smoke_tolerance it may shrink, but where it exceeded that, not
    to nothing at all, as that of a member that has no effect any more would."""
    before, now = stored["direction"], short["direction"]
    if stored["timed"]:
        return {before, now} == {"better", "worse"}
    if now == "equal" and before != "equal" and "smoke_tolerance" in figure:
        return short["change"] == 0 and abs(stored["change"]) > figure["smoke_tolerance"]
    return now != before
