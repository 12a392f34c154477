// Every member that an engine or a request can choose at run time, with options that fit tiny models: what is combined
// by the tests of compatibility. A member of a registry without a line here fails them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "context/document_context.h"
#include "exit/exit_gate.h"
#include "kv/kv_formats.h"
#include "kv/prefix_evictor.h"
#include "kv/state_evictor.h"
#include "kv/tiers/places.h"
#include "kv/token_evictor.h"
#include "models/forward_switches.h"
#include "pattern_texts.h"
#include "properties/stream_bits.h"
#include "schedule/policy.h"
#include "speculate/acceptance.h"
#include "speculate/drafter.h"

namespace millrace::testing {

// One choice of a family; a combination has at most one of each family.
struct MemberChoice {
  std::string family, text;
  std::function<void(EngineOptions&)> engine = nullptr;
  std::function<void(Request&)> request = nullptr;
  bool other_streams_show = false;  // answers depend on what other streams have drafted
};

// The files that some choices need.
struct ChoiceFiles {
  std::string heads;      // folder of trained drafters and of their model
  std::string datastore;  // file of the drafter rest
  std::string store;      // file that a prefix store may write
};

template <typename Registry>
void expect_all_chosen(const Registry& registry, const std::vector<MemberChoice>& choices, const std::string& family,
                       std::initializer_list<std::string_view> left_out) {
  for (const auto& entry : registry.entries()) {
    const auto has = [&](const MemberChoice& one) {
      return one.family == family && one.text.substr(0, one.text.find(':')) == entry.info.name;
    };
    if (std::ranges::find(left_out, entry.info.name) != left_out.end()) continue;
    EXPECT_TRUE(std::ranges::any_of(choices, has))
        << family << " " << entry.info.name << ": has no line in tests/properties/member_choices.h";
  }
}

inline void add_drafter_choices(const ChoiceFiles& files, std::vector<MemberChoice>& out) {
  std::vector<std::string> texts = {"ngram:n=2,min=1,k=3",
                                    "ngram:n=2,min=1,k=3,branches=2",
                                    "suffix:min=1",
                                    "rest:branches=1,min=1,file=" + files.datastore,
                                    "token_recycling:tokens=6,depth=3",
                                    "prediction",
                                    "lookahead:w=3,n=3,g=3",
                                    "draft:k=3,model=" + files.heads + "target",
                                    "self:k=3,attn=2-4,mlp=2-4",
                                    "layerskip:k=3,exit=3",
                                    "cascade:k=2,model=" + files.heads + "target",
                                    "staged:k=2,nodes=4,model=" + files.heads + "target",
                                    "medusa:model=" + files.heads + "medusa",
                                    "eagle:model=" + files.heads + "eagle",
                                    "kangaroo:exit=3,model=" + files.heads + "kangaroo",
                                    "pass:k=2,model=" + files.heads + "pass",
                                    "longspec:model=" + files.heads + "longspec",
                                    "best:of=ngram+suffix"};
  for (const std::string& text : texts)
    out.push_back({"drafter", text, [text](EngineOptions& o) { o.drafter = text; }});
  expect_all_chosen(drafters(), out, "drafter", {"mtp"});  // needs a model of DeepSeek's
}

inline void add_evictor_choices(std::vector<MemberChoice>& out) {
  for (const std::string text :
       {"streamingllm:sinks=2,window=12,slack=4", "streamingllm:sinks=2,window=12,slack=4,positions=cache",
        "h2o:budget=14,slack=4", "window:budget=11,slack=1", "random:budget=13,slack=6", "tova:budget=12,slack=3",
        "snapkv:budget=16,window=6,kernel=3,slack=5", "snapkv:budget=16,window=6,heads=1.2.1.2.1.2.1",
        "scissorhands:budget=14,recent=4,history=8,slack=4", "pyramidkv:budget=16,window=6,kernel=3,beta=3,slack=5",
        "spatten:keep=20,final=9,recent=4,slack=3", "key_norm:budget=14,recent=4,slack=4", "adaptively_sparse",
        "seqboat"}) {
    out.push_back({"evictor", text, [text](EngineOptions& o) { o.evictor = text; }});
    out.push_back({"request evictor", text, nullptr, [text](Request& r) { r.evictor = text; }});
  }
  expect_all_chosen(token_evictors(), out, "evictor", {});
}

inline void add_exit_choices(std::vector<MemberChoice>& out) {
  const std::string text = "layers:n=2";
  out.push_back({"exit", text, [text](EngineOptions& o) { o.kernels.push_back("exit=" + text); }});
  out.push_back({"request exit", text, nullptr, [text](Request& r) { r.exit = text; }});
  expect_all_chosen(exit_gates(), out, "exit", {});
}

inline void add_format_choices(std::vector<MemberChoice>& out) {
  for (const std::string text :
       {"f32", "bf16", "f8_e4m3", "q8_0", "f32:values=f16", "f16:window=f32", "progressive:format=f8_e4m3,below=0.2",
        "kivi:bits=4", "kivi:bits=2,residual=32", "flexgen_kv", "atom_kv", "quarot_kv:bits=3", "kvquant", "turboquant"})
    out.push_back({"kv_format", text, [text](EngineOptions& o) { o.kv_format = text; }});
  expect_all_chosen(kv_codecs(), out, "kv_format", {});
}

// Blocks of 64 tokens are whole blocks of every KV format.
inline void add_pattern_choices(std::vector<MemberChoice>& out) {
  const auto add = [&](std::string text) {
    const size_t at = text.find("block="), end = text.find(',', at);
    text.replace(at, std::min(end, text.size()) - at, "block=64");
    out.push_back({"attention", text, [text](EngineOptions& o) { o.kernels.push_back("attention=" + text); }});
  };
  for (const PatternTexts& one : pattern_texts()) add(one.some.empty() ? one.all : one.some);
  add("quest:block=16,top=2,phase=decode");
  for (const std::string text : {"fused:parts=none", "shared_prefix", "unified_max", "by_shape", "gemv",
                                 "npu:chunk=16,pruned=0.5", "fastdecode:count=1"})
    out.push_back({"kernel", text, [text](EngineOptions& o) { o.kernels.push_back(text); }});
  expect_all_chosen(kernel_switches(), out, "kernel", {"padded_experts"});  // never of an engine
}

// Two documents in the prompt.
inline void set_documents(Request& r) { r.documents = {{1, 17}, {17, 33}}; }

inline void add_context_choices(std::vector<MemberChoice>& out) {
  for (const std::string text : {"independent", "kvlink", "ape", "entropy", "epic:recompute=4", "cacheblend:ratio=0.2"})
    for (const bool whole : {true, false}) {
      const auto engine = [text](EngineOptions& o) { o.document_context = text; };
      const auto request = [text, whole](Request& r) {
        set_documents(r);
        if (!whole) r.document_context = text;
      };
      if (whole)
        out.push_back({"context", text, engine, request});
      else
        out.push_back({"context", text + ": of a request", nullptr, request});
    }
  expect_all_chosen(document_contexts(), out, "context", {"cepe"});  // has a model of its own: encoded_documents_test
}

inline void add_place_choices(const ChoiceFiles& files, std::vector<MemberChoice>& out) {
  const std::string path = files.store;
  out.push_back({"tier", "memory:tokens=400", [](EngineOptions& o) { o.kv_tier = "memory:tokens=400"; }});
  const std::string stream = "disk:memory=64M,path=" + ::testing::TempDir();
  out.push_back({"tier", stream, [stream](EngineOptions& o) { o.kv_tier = stream; }});
  out.push_back({"store", "ssd", [path](EngineOptions& o) { o.kv_store = "ssd:size=1M,path=" + path; }});
  out.push_back({"store", "ssd: in order of importance",
                 [path](EngineOptions& o) { o.kv_store = "ssd:size=1M,order=importance,path=" + path; }});
  out.push_back({"store", "ssd: of which a part is fetched",
                 [path](EngineOptions& o) { o.kv_store = "ssd:size=1M,order=importance,fetch=0.5,path=" + path; }});
  out.push_back(
      {"store", "node: that is not there", [](EngineOptions& o) { o.kv_store = "node:host=127.0.0.1,port=9"; }});
  out.push_back({"pool", "virtual", [](EngineOptions& o) { o.kv_pool = "virtual"; }});
  for (const auto& entry : prefix_evictors().entries())
    out.push_back(
        {"prefix_evictor", entry.info.name, [name = entry.info.name](EngineOptions& o) { o.prefix_evict = name; }});
  for (const auto& entry : state_evictors().entries())
    out.push_back({"state_evictor", entry.info.name, [name = entry.info.name](EngineOptions& o) {
                     o.state_evict = name;
                     o.state_stride = 16;
                   }});
  expect_all_chosen(kv_tiers(), out, "tier", {});
  expect_all_chosen(kv_stores(), out, "store", {"redis"});  // needs a server
}

inline void add_other_choices(std::vector<MemberChoice>& out) {
  for (const auto& entry : policies().entries())
    out.push_back({"policy", entry.info.name, [name = entry.info.name](EngineOptions& o) { o.policy = name; }});
  for (const auto& entry : acceptances().entries())
    out.push_back({"acceptance", entry.info.name, [name = entry.info.name](EngineOptions& o) { o.acceptance = name; },
                   nullptr, entry.info.name != "exact"});
}

inline void add_request_choices(int64_t width, std::vector<MemberChoice>& out) {
  const auto add = [&](const char* text, std::function<void(Request&)> edit) {
    out.push_back({"request", text, nullptr, std::move(edit)});
  };
  add("beams", [](Request& r) { r.beams = 2; });
  add("answers", [](Request& r) { r.n = 2; });
  add("stop", [](Request& r) { r.stop = {"zzzz"}; });
  add("penalties", [](Request& r) { r.sampling.repetition_penalty = 1.3; });
  add("constraint", [](Request& r) { r.constraint = {.kind = Constraint::Kind::regex, .text = "[a-z ]{3,9}"}; });
  add("rows", [width](Request& r) {
    r.embeddings = {{36, std::make_shared<const std::vector<float>>(static_cast<size_t>(width), 0.1f)}};
  });
  // Combined with the others, too.
  const auto beside = [&](const char* text, std::function<void(Request&)> edit) {
    out.push_back({std::string("request ") + text, text, nullptr, std::move(edit)});
  };
  beside("two beams", [](Request& r) { r.beams = 2; });
  beside("thinking", [](Request& r) { r.thinking = {.tokens = 2, .open = "<", .close = ">"}; });
}

inline std::vector<MemberChoice> member_choices(const ChoiceFiles& files, int64_t width) {
  std::vector<MemberChoice> out;
  add_drafter_choices(files, out);
  add_evictor_choices(out);
  add_exit_choices(out);
  add_format_choices(out);
  add_pattern_choices(out);
  add_context_choices(out);
  add_place_choices(files, out);
  add_other_choices(out);
  add_request_choices(width, out);
  return out;
}

}  // namespace millrace::testing
