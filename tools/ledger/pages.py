"""The generated pages: docs/techniques/NAME.md of each member, with its picture, and docs/techniques/README.md, the table of
all."""

import os
import textwrap

from ledger import picture
from ledger.entries import PAGES, PROOFS, entry_of, stem

WIDTH = 120
UP = f"../../{PROOFS}"  # from a page
STAR = "\\*"  # of a figure that was timed on a busy machine


def _wrap(text):
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def number(value):
    """Four digits of significance, thousands with commas."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _value(side):
    if side["low"] == side["high"]:
        return number(side["median"])
    return f"{number(side['median'])} ({number(side['low'])} to {number(side['high'])})"


def change(figure):
    """How the member differs from its baseline, with the sign of the value itself."""
    baseline, member = figure["baseline"]["median"], figure["member"]["median"]
    if not baseline:
        return "" if member == baseline else f"+{number(member)}"
    percent = 100 * (member - baseline) / abs(baseline)
    if percent > 900:
        return f"x {member / baseline:.1f}"
    return "0" if percent == 0 else f"{percent:+.2g} %" if abs(percent) < 10 else f"{percent:+.0f} %"


def stated(claimed, figure):
    """What a figure says to a claim: a direction, or to a number the member's own."""
    return figure["direction"] if isinstance(claimed, str) else figure["member"]["median"]


def holds(claimed, figure):
    """`claimed`: a direction, or the number that the member must have."""
    return stated(claimed, figure) == claimed


def is_busy(figure, result):
    """Whether a figure was timed while other programs used the machine."""
    return figure["timed"] and result["busy"]


def verdict(entry, result):
    """(sentences, "yes", "no" or "unclear"): whether all claims hold. Figures that are unclear, or that were timed on a
    busy machine, deny none."""
    found = {figure["name"]: figure for figure in result["figures"]}
    failed = [name for name, claimed in entry["claims"].items() if not holds(claimed, found[name])]
    unclear = [name for name in failed if found[name]["direction"] == "unclear" or is_busy(found[name], result)]
    denied = [name for name in failed if name not in unclear]
    open_ = [f"{name} is {found[name]['direction']}" + " on a busy machine" * is_busy(found[name], result)
             for name in unclear]
    if not denied:
        if open_:
            return f"Whether all of it holds here is unclear: {'; '.join(open_)}.", "unclear"
        return "It holds here.", "yes"
    parts = [f"{name} is {stated(entry['claims'][name], found[name])}, not {entry['claims'][name]}" for name in denied]
    start = "It does not hold here" if len(denied) == len(entry["claims"]) else "It holds in part here"
    unclear_too = f" Unclear: {'; '.join(open_)}." if open_ else ""
    return f"{start}: {'; '.join(parts)}.{unclear_too}", "no"


def _facts(technique, family, entry):
    paper = technique["paper"]
    answers = {True: "lossless: the model's tokens stay the same", False: "lossy: they may change",
               None: "none: it computes no answers"}[technique["lossless"]]
    rows = [("family", f"[{technique['family']}](README.md#{technique['family']}): {family['title']}"),
            ("paper", paper["text"] if paper else "none"), ("answers", answers), ("property test", f"`{technique['test']}`")]
    guide = technique.get("guide") or entry.get("guide") or family.get("guide")
    if guide:
        rows.append(("more", f"[{guide}](../{guide.removeprefix('docs/')})"))
    return ["| | |", "|---|---|"] + [f"| {key} | {value} |" for key, value in rows]


def _start(technique, family, entry, stem_):
    """How the member is chosen, and the command that measures it again."""
    choose = entry.get("choose", family.get("choose"))
    chosen = f"`{choose.replace('{name}', technique['name'])}` chooses it ([how](../techniques.md#choosing-them)). " if choose else ""
    return [_wrap(entry["what"]), "", f"{chosen}This measures it again:", "", f"    tools/prove {stem_}"]


def _options(technique):
    if not technique["options"]:
        return ["It has no options."]
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in technique["options"]:
        default = option["default"].replace("|", "\\|")
        lines.append(f"| `{option['name']}` | {f'`{default}`' if default else 'empty'} | {option['help']} |")
    return lines


def _measured(entry, result):
    base = result["baseline"]["name"]
    name = entry.get("member_name", result["name"])
    lines = [f"| | better is | {base} | {name} | change | {name} is |", "|---|---|---:|---:|---:|---|"]
    for figure in result["figures"]:
        unit = entry["figures"].get(figure["name"], {}).get("unit", "")
        label = figure["name"] + (f", {unit}" if unit else "")
        lines.append(f"| {label} | {figure['better']} | {_value(figure['baseline'])} | {_value(figure['member'])} | "
                     f"{change(figure)} | {figure['direction']}{STAR * is_busy(figure, result)} |")
    machine = result["machine"]
    text = f"{result['version']} on {machine['cores']} cores of {machine['cpu']} ({machine['isa']})."
    if result["timed"]:
        text += f" Timed figures: median, lowest and highest of {result['rounds']} rounds in turns."
    if result["busy"]:
        text += (f" A star marks figures that were timed while other programs used {result['load_of_others']:.0%} of the "
                 "processors; they await another run.")
    if any(figure["direction"] == "unclear" for figure in result["figures"]):
        text += " Unclear: the rounds disagree."
    return lines + ["", _wrap(text)]


def _commands(technique, result, stem_):
    lines = [_wrap(f"`tools/prove {stem_}` makes [the result]({UP}/results/{stem_}.json) again. SCRATCH is "
                   "`build/prove/full`."), "", "```sh"]
    for title, commands in (("before", result["prepare"]), (result["baseline"]["name"], result["baseline"]["commands"]),
                            (technique["name"], result["member"]["commands"])):
        if commands:
            lines += [f"# {title}", *commands]
    return lines + ["```"]


def _filled(text, values):
    for key, value in values.items():
        text = text.replace("{%s}" % key, value)
    return text.replace("{{", "{").replace("}}", "}")


def member_page(technique, techniques, family, entry, result):
    """docs/techniques/NAME.md."""
    name = stem(technique, techniques)
    holds, _ = verdict(entry, result)
    sources = f"{PROOFS}/entries/{technique['family']}.toml and {PROOFS}/results/{name}.json"
    lines = [f"# {technique['name']}", "",
             f"<!-- Made by tools/prove from {sources}; not by hand. -->", "", *_start(technique, family, entry, name), "",
             *_facts(technique, family, entry), "", "## Options", "", *_options(technique), "", "## Measured", ""]
    if entry.get("setting"):
        lines += [_wrap(_filled(entry["setting"], {"name": technique["name"], **entry.get("full", {})})), ""]
    lines += _measured(entry, result)
    pictures = [entry["picture"]] if entry.get("picture") else []
    if picture.says_something(result["figures"]):
        pictures.append(f"{UP}/pictures/{name}.svg")
    for path in pictures:
        lines += ["", f"![{technique['name']}]({path})"]
    if entry.get("larger"):
        lines += ["", "## On a larger model", "", _wrap(entry["larger"])]
    of_paper = technique["paper"] and technique["lossless"] is not None
    said = "What the paper claims" if of_paper else "What it claims"
    lines += ["", f"## {said}", "", _wrap(entry["claim"]), "", _wrap(f"{holds} {entry.get('why', '')}"), "",
              "## The proof", "", *_commands(technique, result, name)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def member_picture(entry, result):
    """proofs/pictures/NAME.svg."""
    changes = [change(figure) + STAR[1:] * is_busy(figure, result) for figure in result["figures"]]
    return picture.trade(result["figures"], result["baseline"]["name"], entry.get("member_name", result["name"]), changes)


def _gain(figures):
    """What a member buys, for sorting: quality first, then speed, then memory; the largest gain first."""
    kinds = ("quality", "speed", "memory")
    gains = {kind: max((f["change"] for f in figures if f["kind"] == kind and f["direction"] == "better"), default=0)
             for kind in kinds}
    first = next((at for at, kind in enumerate(kinds) if gains[kind]), len(kinds))
    return first, -gains[kinds[first]] if first < len(kinds) else 0


def _cell(result, direction):
    """The figures of one direction; a star where they were timed on a busy machine."""
    return "; ".join(f"{f['name']} {change(f)}".strip() + STAR * is_busy(f, result)
                     for f in result["figures"] if f["direction"] == direction) or "-"


def _row(technique, techniques, entry, result):
    name = stem(technique, techniques)
    answers = {True: "same", False: "may change", None: "-"}[technique["lossless"]]
    holds = {"yes": "yes", "no": "see page", "unclear": "unclear"}[verdict(entry, result)[1]]
    return (f"| [{technique['name']}]({name}.md) | {technique['summary']} | {answers} | {result['baseline']['name']} | "
            f"{_cell(result, 'better')} | {_cell(result, 'worse')} | {holds} |")


def table_page(techniques, families, results):
    """docs/techniques/README.md. `results`: {(family, name): result}."""
    lines = ["# All techniques", "",
             "<!-- Made by tools/prove from the proofs' results; not by hand. -->", "",
             _wrap("Find out what a technique buys and costs before you choose it. This lists them by family:"),
             "", "    millrace techniques", "",
             _wrap("Every member of every family with what it buys and what it costs against its baseline, as measured by "
                   "its proof. Within a family those that buy quality come first, then speed, then memory, the largest "
                   "gain first. A star marks speed that was measured while other programs used the machine; speed whose "
                   "rounds disagree is unclear, and on the members' pages only. "
                   "[Techniques](../techniques.md) says how they are chosen, [the ledger](../ledger.md) how they are "
                   "proven."), ""]
    for family in dict.fromkeys(technique["family"] for technique in techniques):
        table = families.get(family, {})
        lines += [f"## {family}", "", _wrap(f"{table.get('title', family)}. {table.get('intro', '')}"), "",
                  "| name | what it does | answers | baseline | buys | costs | claim holds |", "|---|---|---|---|---|---|---|"]
        members = [(technique, entry_of(families, technique), results.get((family, technique["name"])))
                   for technique in techniques if technique["family"] == family]
        proven = [member for member in members if member[1] and member[2]]
        for technique, entry, result in sorted(proven, key=lambda member: _gain(member[2]["figures"])):
            lines.append(_row(technique, techniques, entry, result))
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def all_pages(techniques, families, results):
    """{path in the repository: text}, of all members with a result, and of their pictures."""
    pages = {f"{PAGES}/README.md": table_page(techniques, families, results)}
    for technique in techniques:
        entry, result = entry_of(families, technique), results.get((technique["family"], technique["name"]))
        if entry and result:
            path = f"{PAGES}/{stem(technique, techniques)}.md"
            pages[path] = member_page(technique, techniques, families[technique["family"]], entry, result)
            if picture.says_something(result["figures"]):
                pages[f"{PROOFS}/pictures/{stem(technique, techniques)}.svg"] = member_picture(entry, result)
    return pages


def stray_pages(root, pages):
    """Generated pages and pictures of members that no longer exist, and pictures that their members no longer have."""
    found = []
    for folder, ending in ((PAGES, ".md"), (f"{PROOFS}/pictures", ".svg")):
        full = os.path.join(root, folder)
        names = sorted(os.listdir(full)) if os.path.isdir(full) else []
        found += [f"{folder}/{name}" for name in names if name.endswith(ending) and f"{folder}/{name}" not in pages]
    return found
