"""Small pictures as SVG text, the same for the same values: how a member's figures differ from its baseline's."""

import math
from xml.sax.saxutils import escape

COLOURS = {"better": "#1a7f4b", "worse": "#c0392b", "equal": "#6b7280", "unclear": "#6b7280"}
GREY, PALE = "#6b7280", "#d9dce1"


class Svg:
    def __init__(self, width, height):
        self.size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        self.parts = [f'<rect width="{width}" height="{height}" fill="#fff"/>']

    def line(self, x0, y0, x1, y1, colour=GREY, width=1):
        self.parts.append(f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{colour}" stroke-width="{width}"/>')

    def disc(self, x, y, radius, colour):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>')

    def text(self, x, y, text, anchor="start", colour="#1f2328"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>')

    def done(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" {self.size} font-family="sans-serif" font-size="12">\n'
                + "\n".join(self.parts) + "\n</svg>\n")


def ratios(figure):
    """(member over baseline, its lowest and its highest round), or None where one of them has no ratio."""
    baseline, member = figure["baseline"], figure["member"]
    pairs = list(zip(baseline.get("rounds", []), member.get("rounds", []))) or [(baseline["median"], member["median"])]
    if not all(b > 0 and m > 0 for b, m in [*pairs, (baseline["median"], member["median"])]):
        return None
    every = [m / b for b, m in pairs]
    return member["median"] / baseline["median"], min(every), max(every)


def says_something(figures):
    """Whether a picture of a member's figures shows what the member buys, and with what."""
    return {"better", "worse"} <= {figure["direction"] for figure in figures if ratios(figure)}


def _label(octave):
    return f"{2 ** octave}x" if octave >= 0 else f"1/{2 ** -octave}"


def trade(figures, baseline, member, changes):
    """Each figure as the member's share of the baseline's, on a logarithmic axis. `changes`: texts beside them."""
    shown = [(figure, ratios(figure), text) for figure, text in zip(figures, changes) if ratios(figure)]
    logs = [math.log2(value) for _, ratio, _ in shown for value in ratio]
    low, high = min(-1, math.floor(min(logs))), max(1, math.ceil(max(logs)))
    left, right, top, row = 190, 500, 34, 26
    bottom = top + row * len(shown)
    svg = Svg(700, bottom + 26)

    def x_of(ratio):
        return left + (right - left) * (math.log2(ratio) - low) / (high - low)

    step = max(1, math.ceil((high - low) / 6))
    for octave in range(low, high + 1):
        if octave == 0 or (octave - low) % step == 0:
            svg.line(x_of(2 ** octave), top - 6, x_of(2 ** octave), bottom, GREY if octave == 0 else PALE)
            svg.text(x_of(2 ** octave), bottom + 16, _label(octave), "middle", GREY)
    svg.text(x_of(1), top - 14, f"{member} relative to {baseline}", "middle", GREY)
    for at, (figure, (middle, least, most), text) in enumerate(shown):
        y, colour = top + row * (at + 0.5), COLOURS[figure["direction"]]
        svg.text(left - 12, y + 4, figure["name"], "end")
        svg.line(x_of(least), y, x_of(most), y, colour, 2)
        svg.disc(x_of(middle), y, 5, colour)
        svg.text(right + 12, y + 4, f"{text}, {figure['direction']}".lstrip(", "), "start", colour)
    return svg.done()
