// The page's frame: the bar at the top, conversations on the left, one of the views in the middle, settings on the
// right. Views other than the chat are separate chunks, loaded when first shown.
import { onKeyNeeded } from "./api";
import { app, applyTheme, loadFacts, modelName } from "./app";
import { Chat } from "./chat";
import { isAway, serverBack, watchConnection } from "./connection";
import { askForKey, showShortcuts } from "./dialogs";
import { el, icon, iconButton, media } from "./dom";
import { Panel } from "./panel";
import { Sidebar } from "./sidebar";
import * as store from "./store";
import { reason } from "./text";
import { newConversation, type Conversation } from "./tree";

import "./style.css";

const announcer = el("div", { class: "only-heard", "aria-live": "polite", role: "status" });
const notices = el("div", { class: "notices", role: "status", "aria-live": "polite" });
const banner = el("div", { class: "banner", role: "status", hidden: true });
app.say = (text) => (announcer.textContent = text);
app.notice = (text) => {
  const box = el("div", { class: "notice" }, text);
  notices.append(box);
  setTimeout(() => box.remove(), 6000);
};

const chat = new Chat((conversation, listed = true) => void keep(conversation, listed));
const sidebar = new Sidebar({
  open: (id) => void openConversation(id),
  fresh,
  renamed: (id, title) => {
    if (id === chat.conversation.id) chat.conversation.title = title;
  },
  removed: (id) => {
    chat.stop(id);
    if (id === chat.conversation.id) fresh();
  },
});
const panel = new Panel({
  get: () => chat.conversation.system,
  set: (text) => {
    chat.conversation.system = app.settings.system = text;
    app.saveSettings();
    if (Object.keys(chat.conversation.messages).length > 0) void keep(chat.conversation);
  },
});
// The views other than the chat. `load` imports a view and returns the function that shows it; that function returns the
// one that ends it.
const views: Record<string, { root: HTMLElement; load: () => Promise<(into: HTMLElement) => () => void> }> = {
  models: { root: el("section", { class: "models", "aria-label": "Models", hidden: true }), load: async () => (await import("./models/view")).manage.bind(null, showFacts) },
  live: { root: el("section", { class: "live", "aria-label": "Live view", hidden: true }), load: async () => (await import("./live/view")).watch },
  compare: { root: el("section", { class: "compare", "aria-label": "Comparisons", hidden: true }), load: async () => (await import("./compare/view")).compare },
};
let stopView: (() => void) | null = null;

const modelChoice = el("select", { class: "model-choice", "aria-label": "Model" });
modelChoice.addEventListener("change", () => app.chooseModel(modelChoice.value));
document.addEventListener("modelchange", () => {
  modelChoice.value = modelName();
  void showFacts().catch(() => undefined);
});
const tabs: Record<string, HTMLElement> = {
  chat: el("a", { href: "#chat", class: "tab" }, "Chat"),
  models: el("a", { href: "#models", class: "tab" }, "Models"),
  live: el("a", { href: "#live", class: "tab" }, el("span", { class: "pulse", "aria-hidden": "true" }), "Live"),
  compare: el("a", { href: "#compare", class: "tab" }, "Compare"),
};
const themeButton = iconButton("moon", "Switch between light and dark", switchTheme);
const panelButton = iconButton("sliders", "Generation settings", () => showPanel(panel.root.hidden), { "aria-controls": "panel", "aria-expanded": "false" });
const menuButton = iconButton("menu", "Conversations", () => showSidebar(!document.body.classList.contains("with-sidebar")), { "aria-controls": "sidebar" });
const cover = el("div", { class: "cover", onclick: () => {
  showSidebar(false);
  showPanel(false);
} });

function isDark(): boolean {
  return app.settings.theme === "system" ? media.dark.matches : app.settings.theme === "dark";
}

function switchTheme(): void {
  const wanted = isDark() ? "light" : "dark";
  app.settings.theme = (wanted === "dark") === media.dark.matches ? "system" : wanted;
  app.saveSettings();
  showTheme();
}

function showTheme(): void {
  applyTheme();
  themeButton.replaceChildren(icon(isDark() ? "sun" : "moon"));
}

function showPanel(shown: boolean): void {
  if (shown) panel.draw();
  panel.root.hidden = !shown;
  document.body.classList.toggle("with-panel", shown);
  panelButton.setAttribute("aria-expanded", String(shown));
  if (shown && media.narrow.matches) showSidebar(false);
}

function showSidebar(shown: boolean): void {
  document.body.classList.toggle("with-sidebar", shown);
  menuButton.setAttribute("aria-expanded", String(shown));
  if (shown && media.narrow.matches) showPanel(false);
}

async function keep(conversation: Conversation, listed = true): Promise<void> {
  try {
    await store.save(conversation);
    localStorage.setItem("millrace.open", chat.conversation.id);
    if (listed) await sidebar.refresh(chat.conversation.id);
  } catch {
    if (listed) app.notice("This browser cannot store conversations; they are lost when the page closes.");
  }
}

function fresh(): void {
  chat.show(newConversation(app.settings.system));
  localStorage.removeItem("millrace.open");
  void sidebar.refresh("");
  location.hash = "#chat";
  if (media.narrow.matches) showSidebar(false);
  if (!panel.root.hidden) panel.draw();
  chat.composer.field.focus();
}

async function openConversation(id: string): Promise<void> {
  const conversation = await store.load(id);
  if (!conversation) return;
  chat.show(conversation);
  localStorage.setItem("millrace.open", id);
  await sidebar.refresh(id);
  location.hash = "#chat";
  if (media.narrow.matches) showSidebar(false);
  if (!panel.root.hidden) panel.draw();
}

let routed = false;

async function route(): Promise<void> {
  routed = true;
  const wanted = location.hash.slice(1);
  const view = Object.hasOwn(views, wanted) ? wanted : "chat";
  for (const [name, tab] of Object.entries(tabs)) {
    if (name === view) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  chat.root.hidden = view !== "chat";
  for (const [name, { root }] of Object.entries(views)) root.hidden = name !== view;
  document.body.dataset.view = view;
  stopView?.();
  stopView = null;
  const shown = views[view];
  if (!shown) return;
  if (media.narrow.matches) showPanel(false); // it belongs to the chat, and would cover everything
  try {
    const open = await shown.load();
    if (location.hash === `#${view}` && !stopView) stopView = open(shown.root);
  } catch {
    // Browsers cache a failed module load: only a reload of the page retries it.
    shown.root.replaceChildren(el("p", { class: "live-lost", role: "alert" }, "The view could not be loaded because the server is not responding. It opens when the server is back."));
    if (!isAway()) await loadFacts().catch(() => undefined); // detects that the server is unreachable
    await serverBack();
    if (location.hash === `#${view}`) location.reload();
  }
}

async function showFacts(): Promise<void> {
  await loadFacts();
  modelChoice.replaceChildren(...app.models.map((one) => el("option", { value: one.id, selected: one.id === modelName() }, one.id)));
  modelChoice.title = modelName();
  if (!chat.working) chat.draw();
  if (!panel.root.hidden && !panel.root.contains(document.activeElement)) panel.draw();
}

const keys: Record<string, () => void> = {
  "/": () => chat.composer.field.focus(),
  n: fresh,
  e: () => chat.editLast(),
  r: () => chat.regenerateLast(),
  "[": () => chat.turnLast(-1),
  "]": () => chat.turnLast(1),
  l: () => (location.hash = location.hash === "#live" ? "#chat" : "#live"),
  m: () => (location.hash = location.hash === "#models" ? "#chat" : "#models"),
  f: () => {
    location.hash = "#chat";
    showSidebar(true);
    sidebar.focusSearch();
  },
  p: () => showPanel(panel.root.hidden),
  t: switchTheme,
  "?": showShortcuts,
};

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (chat.working) chat.stop();
    else if (media.narrow.matches) {
      showSidebar(false);
      showPanel(false);
    }
    return;
  }
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select")) return;
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

function frame(): void {
  document.body.append(
    el("a", { class: "skip", href: "#composer", onclick: (event: Event) => {
      event.preventDefault();
      chat.composer.field.focus();
    } }, "Skip to the message field"),
    el("header", { class: "bar" },
      menuButton,
      el("span", { class: "brand" }, el("img", { src: "favicon.svg", alt: "", width: "22", height: "22" }), "millrace"),
      el("nav", { class: "tabs", "aria-label": "Views" }, ...Object.values(tabs)),
      modelChoice,
      el("div", { class: "bar-end" }, iconButton("keyboard", "Keyboard shortcuts", showShortcuts, { class: "icon-button only-wide" }), themeButton, panelButton)),
    banner,
    el("div", { class: "frame" }, sidebar.root, el("main", {}, chat.root, ...Object.values(views).map(({ root }) => root)), panel.root, cover),
    notices, announcer);
}

async function start(): Promise<void> {
  frame();
  showTheme();
  media.dark.addEventListener("change", showTheme);
  showSidebar(!media.narrow.matches);
  media.narrow.addEventListener("change", () => {
    showSidebar(!media.narrow.matches);
    if (media.narrow.matches) showPanel(false);
  });
  onKeyNeeded(askForKey);
  watchConnection((away) => {
    banner.hidden = !away;
    banner.textContent = away ? "The server is not responding. Retrying …" : "";
    if (away) return;
    app.notice("Reconnected.");
    void showFacts().catch(() => undefined);
  });
  // A file dropped outside the conversation would replace the page.
  for (const type of ["dragover", "drop"]) window.addEventListener(type, (event) => event.preventDefault());
  window.addEventListener("pagehide", () => chat.answering.forEach((conversation) => void keep(conversation, false)));
  window.addEventListener("hashchange", () => void route());
  chat.draw();
  // Before the first await: later, it would take the focus from what the user has clicked meanwhile.
  if (!media.narrow.matches && (location.hash === "" || location.hash === "#chat")) chat.composer.field.focus();
  const open = localStorage.getItem("millrace.open");
  try {
    const conversation = open ? await store.load(open) : undefined;
    if (conversation) chat.show(conversation);
    await sidebar.refresh(chat.conversation.id);
  } catch {
    app.notice("This browser cannot store conversations; they are lost when the page closes.");
  }
  try {
    await showFacts();
  } catch (error) {
    if (!isAway()) app.notice(reason(error));
  }
  if (!routed) await route(); // a view that was opened meanwhile keeps what was typed in it
}

void start();
