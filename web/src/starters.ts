// Describes the selected model on the empty page and offers first messages. The built-in models are offered only the
// kinds of message that they were trained on.

export interface Starter {
  shown: string; // Markdown
  sent: string;
}

export interface FirstScreen {
  about: string;
  starters: Starter[];
  demonstration: boolean; // the model is one of those in the binary
}

export interface Described {
  id: string;
  meta?: { n_params?: number };
}

const same = (text: string): Starter => ({ shown: text, sent: text });

const lab: Starter[] = [
  same("The code of the silver clock is 5956. The small eagle sang by the road. The code of the green basket is 7640.\n\nQuestion: What is the code of the silver clock?"),
  { shown: "What is \\(38 + 96 + 25\\)?", sent: "What is 38 + 96 + 25?" },
  same("As JSON with name, day, item, color, count and price: It was Wednesday when 7 red bottles were sold to Milorona Betoshal for 72 coins."),
  same("Sort: pear toad apple drum cat"),
];
const stories = ["Once upon a time, there was a little fox who", "One day, a girl found a box in the garden. In it", "The old boat did not want to go home, because"].map(same);
const questions = ["Explain how a water mill works.", "Write a limerick about a patient miller.", "What is $\\int_0^1 x^2\\,dx$, step by step?"].map(same);

// Serves a model that knows something about the world; docs/models.md.
export const REAL_MODEL = "millrace serve qwen3:0.6b";

const MOST_DEMONSTRATION = 10e6; // parameters of the largest model in the binary, rounded up

const builtIn = (model: Described, kind: string): boolean =>
  new RegExp(`^(millrace-)?${kind}(-|$)`).test(model.id) && (model.meta?.n_params ?? 0) < MOST_DEMONSTRATION;

const demonstration = (model: Described): string => {
  const count = model.meta?.n_params;
  return count ? `A ${(count / 1e6).toFixed(1).replace(/\.0$/, "")} M-parameter demonstration` : "A small demonstration";
};

// `template`: the model's chat template, "" without one; undefined if it is not known.
export function firstScreen(model: Described | undefined, template: string | undefined): FirstScreen {
  if (!model) return { about: "", starters: [], demonstration: false };
  if (builtIn(model, "stories")) {
    return { about: `${demonstration(model)}: it continues simple stories. Write a beginning.`, starters: stories, demonstration: true };
  }
  if (builtIn(model, "lab")) {
    return { about: `${demonstration(model)}: it finds facts in a text, adds, sorts and writes JSON.`, starters: lab, demonstration: true };
  }
  if (template === "") return { about: "This model has no chat template: it continues your text. Write a beginning.", starters: stories, demonstration: false };
  return { about: "Ask a question, or start with one of these.", starters: questions, demonstration: false };
}
