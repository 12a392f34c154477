// Which techniques are switched on, and what each has saved since the engine began.
import { bytes, count, type HelloJson, type LookJson } from "./history";

export interface Technique {
  name: string;
  on: boolean;
  setting: string;
  saves: string;
}

const BITS: Record<string, number> = { f32: 32, f16: 16, bf16: 16, q8_0: 8.5 };

export function techniques(hello: HelloJson, look: LookJson): Technique[] {
  const { options } = hello;
  const t = (name: string): number => look.totals[name] ?? 0;
  const tokens = look.blocks.total * look.blocks.tokens;
  const perToken = tokens > 0 ? hello.kv_bytes / tokens : 0;
  const bits = BITS[options.kv_format];
  const share = t("prefix_query_tokens") > 0 ? ` (${((t("prefix_hit_tokens") / t("prefix_query_tokens")) * 100).toFixed(0)} %)` : "";
  // The members of families come from the server; a family that this table does not know shows what its member says of itself.
  const families: Record<string, Omit<Technique, "on">> = {
    prefix_evictor: { name: "Prefix cache", setting: `evicts by ${options.prefix_evict}`,
      saves: `${count(t("prefix_hit_tokens"))} prompt tokens not computed${share}` },
    policy: { name: "Continuous batching", setting: `${options.policy}, ${options.max_streams} streams`,
      saves: t("steps") > 0 ? `${count((t("prompt_tokens") + t("generated_tokens")) / t("steps"))} tokens a step on average` : "no step yet" },
    kv_format: { name: "KV format", setting: options.kv_format,
      saves: `${bytes(perToken)} a token` + (bits && bits < 32 ? `, ${(100 - (bits / 32) * 100).toFixed(0)} % less than f32` : "") },
  };
  const members = hello.techniques.map(({ family, name, summary }): Technique =>
    ({ ...(families[family] ?? { name: family.replaceAll("_", " "), setting: name, saves: summary }), on: name !== "f32" }));
  const out: Technique[] = [
    ...members,
    ...(options.prefix_cache ? [] : [{ name: "Prefix cache", on: false, setting: "off", saves: "" }]),
    { name: "Chunked prefill", on: true, setting: `${options.batch_tokens} tokens a step`, saves: "streams go on while a prompt is read" },
    { name: "KV pool", on: true, setting: options.kv_pool, saves: `blocks of ${look.blocks.tokens} tokens, taken as streams grow` },
    { name: "Preemption", on: true, setting: options.swap_tokens > 0 ? "swaps to host memory" : "computes again",
      saves: `${count(t("preemptions"))} times, ${count(t("recomputed_tokens"))} tokens computed again` },
    { name: "Swap", on: options.swap_tokens > 0, setting: options.swap_tokens > 0 ? `${count(options.swap_tokens)} tokens` : "off",
      saves: options.swap_tokens > 0 ? `${count(t("swapped_in_tokens"))} tokens brought back` : "" },
    { name: "KV store on disk", on: options.kv_store, setting: look.store ? `${count(look.store.blocks)} blocks` : options.kv_store ? "on" : "off",
      saves: look.store ? `${count(look.store.hit_tokens)} tokens read, not computed` : "" },
  ];
  return out;
}
