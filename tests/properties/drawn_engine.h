// Settings of engines of random runs that keep keys and values of streams: a KV format, an attention pattern, and the
// evictors that streams may use with it. Settings that compose are drawn together; refusals have separate tests.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "kv/prefix_evictor.h"
#include "millrace/options.h"
#include "models/arch.h"
#include "properties/stream_bits.h"

namespace millrace::testing {

enum class KvKind : uint8_t {
  rows,   // stored token by token
  codec,  // whole blocks are encoded
  layers  // every layer has blocks and a budget of its own
};

struct DrawnEngine {
  KvKind kind = KvKind::rows;
  EngineOptions options;
  std::vector<std::string> evictors;  // that a request may name
  bool stores = false;                // may have a prefix store
  std::string store;                  // its file
};

inline std::vector<std::string> drawn_rows(int64_t head_dim) {
  if (head_dim % 32 != 0) return {"f16", "f32", "bf16", "f8_e4m3", "progressive:format=f8_e4m3,below=0.3"};
  return {"f16", "q8_0", "q5_0", "q4_1", "q4_0:values=f16", "progressive:below=0.3"};
}

inline std::vector<std::string> drawn_codecs() {
  return {"kivi:bits=2", "kivi:bits=4,residual=32",      "kvquant:group=32", "flexgen_kv:group=32",
          "atom_kv",     "quarot_kv:bits=3,residual=32", "turboquant",       "turboquant:bits=2"};
}

// With one table for all layers.
inline std::vector<std::string> drawn_evictors() {
  return {"none",
          "streamingllm:sinks=2,window=12,slack=4",
          "streamingllm:sinks=2,window=10,slack=5,positions=cache,prompt=evicted",
          "h2o:budget=14,recent=0.5,slack=4,prompt=evicted",
          "h2o:budget=12,slack=3,scope=head",
          "h2o:budget=38,slack=5,scope=head",
          "tova:budget=12,slack=3",
          "snapkv:budget=16,window=6,kernel=3,slack=5,scope=layer",
          "scissorhands:budget=14,recent=4,history=8,slack=4",
          "window:budget=11,slack=1",
          "random:budget=13,slack=6,prompt=evicted",
          "key_norm:budget=13,recent=4,slack=4,prompt=evicted"};
}

// Beside a codec, some with room for whole blocks.
inline std::vector<std::string> drawn_encoded_evictors() {
  std::vector<std::string> out = drawn_evictors();
  std::erase_if(out, [](const std::string& one) { return one.find("positions=cache") != std::string::npos; });
  out.push_back("h2o:budget=40,recent=0.5,slack=5,prompt=evicted");
  out.push_back("snapkv:budget=44,window=6,kernel=3,slack=6,scope=head");
  out.push_back("streamingllm:sinks=3,window=38,slack=7");
  return out;
}

inline std::string drawn_shares(int64_t count) {
  std::string shares = "1";
  for (int64_t i = 1; i < count; ++i) shares += fmt::format(".{}", i % 3 + 1);
  return shares;
}

// Evictors with budgets by layer, for a model with `layers` layers.
inline std::vector<std::string> drawn_layer_evictors(int64_t layers) {
  const std::string shares = drawn_shares(layers);
  return {"pyramidkv:budget=16,window=6,kernel=3,beta=3,slack=5",
          "spatten:keep=20,final=9,recent=4,slack=3,prompt=evicted",
          "spatten:keep=24,final=10,recent=4,slack=6,heads=0.5",
          "scissorhands:budget=14,recent=4,history=8,slack=4,layers=" + shares};
}

// Evictors with budgets by head, for a model with `heads` KV heads in all layers. Their number is that of the evictors
// by layer.
inline std::vector<std::string> drawn_head_evictors(int64_t heads) {
  const std::string shares = ",heads=" + drawn_shares(heads);
  return {"scissorhands:budget=14,recent=4,history=8,slack=4" + shares,
          "scissorhands:budget=20,recent=2,slack=1,prompt=evicted" + shares,
          "h2o:budget=16,recent=0.3,slack=5,prompt=evicted" + shares,
          "snapkv:budget=16,window=6,kernel=3,slack=6" + shares};
}

// Patterns that store nothing in addition to the keys, and those that do.
inline std::vector<std::string> drawn_patterns(bool own_rows) {
  if (own_rows)
    return {"quest:block=16,top=1,sinks=0,window=1,first=0", "minference:block=16,top=1,sinks=0,window=1",
            "minference:block=16,heads=v1+1.a2.b1,last=2,sinks=0,window=1",
            "quest:block=16,top=1,sinks=0,window=1,first=0,phase=prompt",
            "diffuser:block=16,window=1,global=0,random=1,alpha=0.5,hops=2"};
  return {"bigbird:block=16,window=2,global=1,random=1", "sink_window:block=16,sinks=0,window=1",
          "longformer:block=16,window=2,phase=prompt"};
}

// draw(n) is at least 0 and below n.
template <typename Draw>
const std::string& drawn_from(const Draw& draw, const std::vector<std::string>& choices) {
  return choices[static_cast<size_t>(draw(std::ssize(choices)))];
}

// `number` counts a run's engines, so that every kind has its turn.
template <typename Draw>
DrawnEngine draw_engine_kind(const Draw& draw, uint64_t number, const ArchSpec& model) {
  const int64_t layers = model.layer_count();
  DrawnEngine e;
  e.options = options();
  const uint64_t kind = number % 5;
  if (kind == 0) {
    e.kind = KvKind::codec;
    e.options.kv_format = drawn_from(draw, drawn_codecs());
    if (draw(2)) {
      e.options.kernels = {draw(2) ? "attention=bigbird:block=32,window=1,global=1,random=0"
                                   : "attention=quest:block=32,top=1,first=0"};
    } else if (!e.options.kv_format.starts_with("kvquant")) {
      e.evictors = drawn_encoded_evictors();
      if (draw(2)) e.options.evictor = drawn_from(draw, e.evictors);
    }
    e.stores = e.options.kv_format.find("residual") == std::string::npos;
    return e;
  }
  e.options.kv_format = drawn_from(draw, drawn_rows(model.layers[0].head_dim));
  if (kind == 1) {
    e.kind = KvKind::layers;
    const bool by_head = number / 5 % 2 == 1;
    const std::vector<std::string> own =
        by_head ? drawn_head_evictors(layers * model.layers[0].kv_heads) : drawn_layer_evictors(layers);
    e.options.evictor = drawn_from(draw, own);
    e.evictors = drawn_evictors();
    std::erase_if(e.evictors, [](const std::string& one) { return one.find("positions=cache") != std::string::npos; });
    e.evictors.insert(e.evictors.end(), own.begin(), own.end());
    if (draw(2)) e.options.kernels = {"attention=" + drawn_from(draw, drawn_patterns(false))};
    if (by_head) e.options.kernels.clear();
    return e;
  }
  e.stores = true;
  if (kind == 2) {
    const bool one_format = e.options.kv_format.find(':') == std::string::npos;
    e.options.kernels = {"attention=" + drawn_from(draw, drawn_patterns(one_format && draw(2)))};
  }
  if (draw(2)) e.options.evictor = drawn_from(draw, drawn_evictors());
  e.evictors = drawn_evictors();
  return e;
}

// Codecs observe no attention, which some prefix evictors need.
template <typename Draw>
void draw_prefix_evictor(const Draw& draw, DrawnEngine& e) {
  std::vector<std::string> names;
  for (const PrefixEvictor* one : prefix_evictors().members())
    if (e.kind == KvKind::rows || !(one->needs & kNeedsAttentionMass)) names.push_back(std::string(one->name));
  e.options.prefix_evict = drawn_from(draw, names);
}

}  // namespace millrace::testing
