// The list of conversations: open, rename, delete, export, import.
import { download, el, icon, iconButton } from "./dom";
import * as store from "./store";
import { app } from "./app";
import { readConversation } from "./tree";

const MOST_IMPORT_BYTES = 64 << 20;
const SEARCH_PAUSE = 150; // ms without a key, after which the search begins

const when = (time: number): string => {
  const days = Math.floor((new Date().setHours(0, 0, 0, 0) - new Date(time).setHours(0, 0, 0, 0)) / 86_400_000);
  return days <= 0 ? "Today" : days === 1 ? "Yesterday" : days < 7 ? "This week" : days < 31 ? "This month" : "Earlier";
};

export interface SidebarActions {
  open(id: string): void;
  fresh(): void;
  renamed(id: string, title: string): void;
  removed(id: string): void;
}

export class Sidebar {
  readonly root: HTMLElement;
  private readonly items = el("div", { class: "conversations" });
  private readonly picker = el("input", { type: "file", accept: "application/json,.json", hidden: true, tabindex: "-1", "aria-hidden": "true" });
  private readonly query = el("input", { type: "search", class: "search", placeholder: "Search conversations", "aria-label": "Search conversations", enterkeyhint: "search" });
  private searching = new AbortController();
  private all: store.Listed[] = [];
  private current = "";

  constructor(private readonly actions: SidebarActions) {
    this.root = el("nav", { class: "sidebar", id: "sidebar", "aria-label": "Conversations" },
      el("button", { type: "button", class: "button new-chat", onclick: () => actions.fresh() }, icon("plus"), "New conversation"),
      this.query,
      this.items,
      el("div", { class: "sidebar-foot" },
        el("button", { type: "button", class: "quiet", onclick: () => void this.exportAll() }, icon("download"), "Export"),
        el("button", { type: "button", class: "quiet", onclick: () => this.picker.click() }, icon("upload"), "Import"), this.picker));
    this.picker.addEventListener("change", () => void this.importFile());
    this.query.addEventListener("input", () => void this.search());
    this.query.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.query.value === "") return;
      event.stopPropagation();
      this.query.value = "";
      void this.search(); // ends the pending one
    });
  }

  focusSearch(): void {
    this.query.focus();
  }

  // Shows the conversations with all words of the query. A later query ends this search.
  private async search(): Promise<void> {
    this.searching.abort();
    this.searching = new AbortController();
    const { signal } = this.searching;
    if (this.query.value.trim() === "") return this.draw();
    await new Promise((resolve) => setTimeout(resolve, SEARCH_PAUSE));
    if (signal.aborted) return;
    const found = await store.search(this.query.value, signal).catch((): store.Found[] => []);
    if (signal.aborted) return;
    const listing = el("ul", { "aria-label": "Found conversations" }, ...found.map((one) => this.item(one, one.around)));
    const text = found.length === 0 ? "No conversation contains these words." : `${found.length} ${found.length === 1 ? "conversation" : "conversations"} found`;
    this.items.replaceChildren(el("p", { class: "hint" }, text), listing);
    app.say(text);
  }

  async refresh(current: string): Promise<void> {
    this.current = current;
    this.all = await store.list();
    for (const old of store.surplus(this.all)) {
      if (old.id === current) continue;
      await store.remove(old.id);
      app.notice(`"${old.title}" was the oldest of ${store.MOST_CONVERSATIONS} conversations and has been removed.`);
      this.all = this.all.filter((one) => one.id !== old.id);
    }
    if (this.query.value.trim() === "") this.draw();
    else await this.search();
  }

  private draw(): void {
    const parts: HTMLElement[] = [];
    let group = "";
    let listing: HTMLElement | null = null;
    for (const one of this.all) {
      if (when(one.updated) !== group || !listing) {
        group = when(one.updated);
        listing = el("ul", { "aria-label": group });
        parts.push(el("h2", {}, group), listing);
      }
      listing.append(this.item(one));
    }
    if (parts.length === 0) parts.push(el("p", { class: "hint" }, "Conversations stay in this browser."));
    this.items.replaceChildren(...parts);
  }

  private item(one: store.Listed, around = ""): HTMLElement {
    const title = one.title || "Untitled";
    const row = el("li", { class: one.id === this.current ? "current" : undefined },
      el("button", { type: "button", class: "conversation", title, "aria-current": one.id === this.current ? "true" : undefined, dir: "auto", onclick: () => this.actions.open(one.id) }, title, around !== "" && el("small", { dir: "auto" }, around)),
      iconButton("edit", `Rename ${title}`, () => this.rename(one, row)),
      iconButton("trash", `Delete ${title}`, () => void this.remove(one, row)));
    return row;
  }

  private rename(one: store.Listed, row: HTMLElement): void {
    const field = el("input", { class: "rename", value: one.title, "aria-label": "Title", maxlength: "120" });
    let over = false;
    const end = async (keep: boolean): Promise<void> => {
      if (over) return;
      over = true;
      const title = field.value.trim();
      const conversation = keep && title ? await store.load(one.id) : undefined;
      if (conversation) {
        await store.save({ ...conversation, title });
        this.actions.renamed(one.id, title);
      }
      await this.refresh(this.current);
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") void end(true);
      if (event.key === "Escape") {
        event.stopPropagation();
        void end(false);
      }
    });
    field.addEventListener("blur", () => void end(true));
    row.replaceChildren(field);
    field.select();
  }

  // Asks for confirmation.
  private async remove(one: store.Listed, row: HTMLElement): Promise<void> {
    const sure = el("button", { type: "button", class: "sure", onclick: async () => {
      await store.remove(one.id);
      this.actions.removed(one.id);
      await this.refresh(this.current);
    } }, "Delete");
    row.replaceChildren(el("span", { class: "conversation" }, one.title || "Untitled"), sure,
      iconButton("close", "Cancel", () => void this.refresh(this.current)));
    sure.focus();
  }

  private async exportAll(): Promise<void> {
    download(`millrace-conversations-${new Date().toISOString().slice(0, 10)}.json`, await store.exportAll());
  }

  private async importFile(): Promise<void> {
    const file = this.picker.files?.[0];
    this.picker.value = "";
    if (!file) return;
    if (file.size > MOST_IMPORT_BYTES) return app.notice("The file is too large.");
    try {
      const { conversations } = JSON.parse(await file.text()) as { conversations: unknown[] };
      const read = (Array.isArray(conversations) ? conversations : []).slice(0, store.MOST_CONVERSATIONS).map(readConversation);
      let count = 0;
      for (const one of read) {
        if (!one) continue;
        await store.save(one);
        ++count;
      }
      app.notice(count > 0 ? `${count} ${count === 1 ? "conversation" : "conversations"} imported.` : "The file contains no conversations.");
    } catch {
      app.notice("The file is not a conversation export.");
    }
    await this.refresh(this.current);
  }
}
