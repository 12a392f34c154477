// Reads what the server lists at GET /techniques, and writes a configuration as text.

export interface OptionJson {
  name: string;
  type: "integer" | "number" | "boolean" | "text";
  default: string;
  help: string;
  min?: number;
  max?: number;
}

export interface MemberJson {
  family: string;
  name: string;
  summary: string;
  lossless: boolean | null;
  options: OptionJson[];
}

export interface SuiteJson {
  name: string;
  argument: string; // "TASK": required; "[TOKENS]": optional; "": none
  summary: string;
  over_http: boolean; // needs no file of the server's machine
}

export interface Registry {
  request_families: string[];
  compare_families: string[];
  suites: SuiteJson[];
  techniques: MemberJson[];
}

// One chosen technique. Options that are not in `values` have their defaults.
export interface Part {
  family: string;
  name: string;
  values: Record<string, string>;
}

// "evictor=h2o:budget=64", as for --use.
export function partText({ family, name, values }: Part): string {
  const given = Object.entries(values).filter(([, value]) => value.trim() !== "").map(([key, value]) => `${key}=${value.trim()}`);
  return `${family}=${name}${given.length > 0 ? `:${given.join(",")}` : ""}`;
}

// "model=lab + evictor=h2o:budget=64"; "plain" without any part.
export function specText(parts: Part[], model = ""): string {
  const all = [...(model ? [`model=${model}`] : []), ...parts.map(partText)];
  return all.length > 0 ? all.join(" + ") : "plain";
}

// Returns why the value of an option is wrong; "" if it is not.
export function wrongValue(option: OptionJson, value: string): string {
  if (value.trim() === "" || option.type === "text" || option.type === "boolean") return "";
  const number = Number(value);
  if (!Number.isFinite(number)) return `${option.name} must be a number`;
  if (option.type === "integer" && !Number.isInteger(number)) return `${option.name} must be a whole number`;
  if (option.min !== undefined && number < option.min) return `${option.name} must be at least ${option.min}`;
  if (option.max !== undefined && number > option.max) return `${option.name} must be at most ${option.max}`;
  return "";
}

export const familyName = (family: string): string => {
  const names: Record<string, string> = { kv_format: "KV cache format", evictor: "Token evictor", state_evictor: "State evictor", drafter: "Speculative drafter", acceptance: "Acceptance of drafts", exit: "Early exit", context: "Document contexts" };
  return names[family] ?? family.charAt(0).toUpperCase() + family.slice(1).replaceAll("_", " ");
};

// "2/3 lab:copy" and the fraction of this part, as a fraction of the whole.
export function overall(part: string, fraction: number): number {
  const match = /^(\d+)\/(\d+) /.exec(part);
  return match ? (Number(match[1]) - 1 + fraction) / Number(match[2]) : 0;
}
