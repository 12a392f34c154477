// The models of the server, merged from its lists: /models has their state, /api/tags their size on disk, /api/ps when
// a loaded one will be unloaded.

export interface Status {
  value: string; // unloaded, loading, loaded
  failed?: boolean;
  error?: string;
}

export interface ModelsJson {
  data: { id: string; status: Status; stored?: boolean; max_model_len?: number; meta?: { n_params?: number; size?: number } }[];
  store?: boolean; // false: the server cannot download models
  memory?: { total: number | null; available: number | null; resident: number; budget: number };
}

export interface TagsJson {
  models: { name: string; size?: number; details?: { parameter_size?: string; quantization_level?: string; family?: string } }[];
}

export interface RunningJson {
  models: { name: string; expires_at?: string }[];
}

export interface Listed {
  name: string;
  state: string;
  error: string;
  stored: boolean;
  bytes: number;      // 0: unknown
  facts: string[];    // "4.1M parameters", "Q8_0", "context 2048"
  expires: number;    // ms since 1970; 0: stays loaded
}

export interface Memory {
  bytes: number;     // of this machine, or of the server's budget if it has one; 0: unknown
  available: number; // of the machine
  used: number;      // by the server
  budget: boolean;
}

const FAR = 50 * 365 * 86_400_000; // a longer time means: never

export function listModels(models: ModelsJson, tags: TagsJson, running: RunningJson, now = Date.now()): Listed[] {
  return models.data.map((model): Listed => {
    const tag = tags.models.find((one) => one.name === model.id);
    const expires = Date.parse(running.models.find((one) => one.name === model.id)?.expires_at ?? "");
    const { details } = tag ?? {};
    return {
      name: model.id,
      state: model.status.value,
      error: model.status.failed ? (model.status.error ?? "could not be loaded") : "",
      stored: model.stored === true,
      bytes: tag?.size ?? model.meta?.size ?? 0,
      facts: [details?.family ?? "", details?.parameter_size ? `${details.parameter_size} parameters` : "", details?.quantization_level ?? "", model.max_model_len ? `context ${model.max_model_len.toLocaleString("en")}` : ""].filter((one) => one !== ""),
      expires: Number.isNaN(expires) || expires - now > FAR ? 0 : expires,
    };
  });
}

export function memoryOf(models: ModelsJson): Memory | null {
  const { memory } = models;
  if (!memory) return null;
  const { total, available, resident, budget } = memory;
  return { bytes: budget > 0 ? budget : (total ?? 0), available: available ?? 0, used: resident, budget: budget > 0 };
}

// Why a model does not fit into memory; "" if it does, or if it is not known. Loading needs about the size of its file,
// and room for keys and values.
export function tooLarge(model: Listed, memory: Memory | null): string {
  if (!memory || model.state === "loaded" || model.bytes === 0) return "";
  if (memory.bytes > 0 && model.bytes > memory.bytes) return memory.budget ? "larger than the server's memory budget" : "larger than this machine's memory";
  return memory.available > 0 && model.bytes > memory.available ? "larger than the memory that is free now" : "";
}

export const amount = (bytes: number): string =>
  bytes >= 1e9 ? `${(bytes / 1e9).toFixed(bytes >= 1e10 ? 0 : 1)} GB` : bytes >= 1e6 ? `${(bytes / 1e6).toFixed(bytes >= 1e7 ? 0 : 1)} MB` : `${Math.ceil(bytes / 1e3)} kB`;
