// Comparisons: configurations built from the registry and run on the server, or a result from a file; and one question
// answered by two configurations.
import { app } from "../app";
import { el } from "../dom";
import { reason } from "../text";
import { TwoAnswers } from "./answers";
import { ComparisonForm } from "./form";
import { ResultPlot } from "./plot";
import { registry } from "./registry";
import "./compare.css";

// Shows the view until the returned function is called.
export function compare(into: HTMLElement): () => void {
  const plot = new ResultPlot();
  const built = el("div", { class: "compare-built" }, el("p", { class: "compare-about", role: "status" }, "Asking the server for its techniques …"));
  const both = el("div");
  let form: ComparisonForm | null = null, answers: TwoAnswers | null = null, over = false;
  into.replaceChildren(el("div", { class: "compare-inside" }, el("h1", {}, "Compare"), built, plot.root, both));
  registry().then((known) => {
    if (over) return;
    form = new ComparisonForm(known, ({ result, source }) => {
      plot.show(result, source);
      plot.root.scrollIntoView({ block: "start" });
    });
    answers = new TwoAnswers(known);
    built.replaceChildren(form.root);
    both.replaceChildren(answers.root);
  }, (error: unknown) => built.replaceChildren(el("p", { class: "failure", role: "alert" }, reason(error))));
  const redraw = (): void => plot.draw();
  window.addEventListener("resize", redraw);
  document.addEventListener("themechange", redraw);
  return () => {
    over = true;
    form?.end();
    answers?.end();
    window.removeEventListener("resize", redraw);
    document.removeEventListener("themechange", redraw);
    plot.end();
    if (form?.ended) app.notice("The comparison was cancelled, because another view was opened.");
  };
}
