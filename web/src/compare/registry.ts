// The registry of techniques, asked from the server once.
import { ask } from "../api";
import type { Registry } from "./spec";

let loaded: Promise<Registry> | null = null;

// Asks the server once; again after an error.
export function registry(): Promise<Registry> {
  loaded ??= ask("/techniques").then((response) => response.json() as Promise<Registry>).catch((error: unknown) => {
    loaded = null;
    throw error;
  });
  return loaded;
}
