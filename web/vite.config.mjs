// One page. Formulas, code highlighting and the live view are separate chunks, loaded on first use.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",  // a proxy may publish the page under a path
  build: {
    outDir: process.env.MILLRACE_PAGE_OUT ?? "dist",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    cssCodeSplit: true,
    chunkSizeWarningLimit: 700,
  },
  server: { proxy: Object.fromEntries(["/v1", "/live", "/health", "/openapi.json", "/props", "/models", "/api", "/techniques", "/compare", "/tokenize"].map((path) => [path, { target: process.env.MILLRACE_SERVER ?? "http://127.0.0.1:8080", changeOrigin: false }])) },
});
