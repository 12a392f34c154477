// The two dialogs: the API key prompt and the list of keyboard shortcuts.
import { setKey } from "./api";
import { el } from "./dom";

let asking: Promise<boolean> | null = null;

export function askForKey(refused: boolean): Promise<boolean> {
  asking ??= new Promise((resolve) => {
    const field = el("input", { type: "password", id: "key", autocomplete: "current-password", required: true, "aria-describedby": refused ? "key-refused" : undefined });
    const keep = el("input", { type: "checkbox", id: "keep-key" });
    const dialog = el("dialog", { class: "dialog", "aria-labelledby": "key-title" });
    const form = el("form", { method: "dialog" },
      el("h2", { id: "key-title" }, "This server requires a key"),
      refused && el("p", { class: "failure", role: "alert", id: "key-refused" }, "The server did not accept that key."),
      el("p", {}, "It is sent only to this server."),
      el("label", { class: "part-label", for: "key" }, "API key"), field,
      el("label", { class: "check", for: "keep-key" }, keep, el("span", {}, "Remember it in this browser")),
      el("div", { class: "dialog-buttons" },
        el("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Not now"),
        el("button", { type: "submit", class: "button primary" }, "Continue")));
    let given = false;
    form.addEventListener("submit", () => {
      given = true;
      setKey(field.value.trim(), keep.checked);
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      asking = null;
      resolve(given);
    });
    dialog.append(form);
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}

export const shortcuts: [string, string][] = [
  ["Enter", "Send"],
  ["Shift + Enter", "New line"],
  ["Esc", "Stop the answer"],
  ["/", "Write a message"],
  ["N", "New conversation"],
  ["E", "Edit the last message"],
  ["R", "Regenerate the last answer"],
  ["[  ]", "Previous, next version"],
  ["L", "Switch between chat and live view"],
  ["M", "Switch between chat and models"],
  ["F", "Search conversations"],
  ["P", "Generation settings"],
  ["T", "Switch between light and dark"],
  ["?", "This list"],
];

export function showShortcuts(): void {
  if (document.querySelector("dialog[open]")) return;
  const rows = shortcuts.flatMap(([keys, what]) => [el("dt", {}, ...keys.split("  ").map((key) => el("kbd", {}, key))), el("dd", {}, what)]);
  const dialog = el("dialog", { class: "dialog", "aria-labelledby": "shortcuts-title" },
    el("h2", { id: "shortcuts-title" }, "Keyboard shortcuts"), el("dl", { class: "shortcuts" }, ...rows),
    el("form", { method: "dialog", class: "dialog-buttons" }, el("button", { class: "button primary" }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
