// State shared by the parts of the page: settings, models, and what the server says about request fields.
import * as api from "./api";
import { loadSettings, saveSettings, type Settings } from "./store";

export interface App {
  settings: Settings;
  models: api.Model[];
  fields: Record<string, api.FieldSchema>;
  props: api.Props;
  saveSettings(): void;
  chooseModel(name: string): void; // selects and saves it, and dispatches "modelchange" to the document
  say(text: string): void; // announced to screen readers
  notice(text: string): void; // a temporary on-screen notice
}

export const app: App = {
  settings: loadSettings(),
  models: [],
  fields: {},
  props: {},
  saveSettings: () => saveSettings(app.settings),
  chooseModel: (name) => {
    app.settings.model = name;
    app.saveSettings();
    document.dispatchEvent(new Event("modelchange"));
  },
  say: () => undefined,
  notice: () => undefined,
};

export const modelName = (): string =>
  app.models.some((one) => one.id === app.settings.model) ? app.settings.model : (app.models[0]?.id ?? "");

export async function loadFacts(): Promise<void> {
  const [models, fields] = await Promise.allSettled([api.models(), api.chatFields()]);
  if (models.status === "fulfilled") app.models = models.value;
  if (fields.status === "fulfilled") app.fields = fields.value;
  if (models.status === "rejected") throw models.reason;
  const selected = app.models.find((one) => one.id === modelName());
  app.props = selected?.status?.value === "loaded" ? await api.props(selected.id).catch(() => ({})) : {};
}

export function applyTheme(): void {
  const { theme } = app.settings;
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("themechange"));
}
