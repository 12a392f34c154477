// Which techniques are enabled, and what each has saved since the engine started.
import { bytes, count, type HelloJson, type SnapshotJson } from "./history";

export interface Technique {
  name: string;
  on: boolean;
  setting: string;
  saves: string;
}

const BITS: Record<string, number> = { f32: 32, f16: 16, bf16: 16, q8_0: 8.5 };

export function techniques(hello: HelloJson, snapshot: SnapshotJson): Technique[] {
  const { options } = hello;
  const t = (name: string): number => snapshot.totals[name] ?? 0;
  const tokens = snapshot.blocks.total * snapshot.blocks.tokens;
  const perToken = tokens > 0 ? hello.kv_bytes / tokens : 0;
  const bits = BITS[options.kv_format];
  const share = t("prefix_query_tokens") > 0 ? ` (${((t("prefix_hit_tokens") / t("prefix_query_tokens")) * 100).toFixed(0)} %)` : "";
  // The server lists the members in use. A family that is not in this table shows its member's own summary.
  const families: Record<string, Omit<Technique, "on">> = {
    prefix_evictor: { name: "Prefix cache", setting: `evicts by ${options.prefix_evict}`,
      saves: `${count(t("prefix_hit_tokens"))} prompt tokens not computed${share}` },
    policy: { name: "Continuous batching", setting: `${options.policy}, ${options.max_streams} streams`,
      saves: t("steps") > 0 ? `${count((t("prompt_tokens") + t("generated_tokens")) / t("steps"))} tokens per step on average` : "no step yet" },
    kv_format: { name: "KV format", setting: options.kv_format,
      saves: `${bytes(perToken)} per token` + (bits && bits < 32 ? `, ${(100 - (bits / 32) * 100).toFixed(0)} % less than f32` : "") },
    tier: { name: "Swap", setting: options.swap_tokens > 0 ? `${count(options.swap_tokens)} tokens` : "on",
      saves: `${count(t("swapped_in_tokens"))} tokens swapped in` },
    store: { name: "KV store", setting: snapshot.store ? `${count(snapshot.store.blocks)} blocks` : "on",
      saves: snapshot.store ? `${count(snapshot.store.hit_tokens)} tokens read, not computed` : "" },
  };
  const used = new Set(hello.techniques.map(({ family }) => family));
  const members = hello.techniques.map(({ family, name, summary }): Technique =>
    ({ ...(families[family] ?? { name: family.replaceAll("_", " "), setting: name, saves: summary }), on: name !== "f32" }));
  const out: Technique[] = [
    ...members,
    ...(options.prefix_cache ? [] : [{ name: "Prefix cache", on: false, setting: "off", saves: "" }]),
    { name: "Chunked prefill", on: true, setting: `${options.batch_tokens} tokens per step`, saves: "streams keep decoding during a long prefill" },
    { name: "KV pool", on: true, setting: options.kv_pool, saves: `blocks of ${snapshot.blocks.tokens} tokens, allocated as streams grow` },
    { name: "Preemption", on: true, setting: used.has("tier") ? "by swapping to host memory" : "by recomputation",
      saves: `${count(t("preemptions"))} times, ${count(t("recomputed_tokens"))} tokens recomputed` },
    ...(used.has("tier") ? [] : [{ name: "Swap", on: false, setting: "off", saves: "" }]),
    ...(used.has("store") ? [] : [{ name: "KV store", on: false, setting: "off", saves: "" }]),
  ];
  return out;
}
