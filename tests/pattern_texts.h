// Texts that choose each attention pattern, for properties that every member must have: tests loop over these, and a
// member without a text fails them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "attention/pattern.h"

namespace millrace::testing {

struct PatternTexts {
  std::string name;  // name of the member; a member may have several texts
  std::string all;   // sees every key of up to 640 tokens
  std::string some;  // options with which it leaves out some of 280 tokens or more; "": it cannot
};

inline std::vector<PatternTexts> pattern_texts() {
  std::vector<PatternTexts> out = {
      {"full", "block=96", ""},
      {"sparse_transformer", "block=32,stride=20", "block=16,stride=3,split=heads"},
      {"sparse_transformer", "block=32,form=fixed,stride=20", "block=32,form=fixed,stride=3,split=layers"},
      {"longformer", "block=32,window=20", "block=16,window=3,dilation=2,dilated_heads=1"},
      {"bigbird", "block=16,window=2,global=1,random=40", "block=32,window=2,global=1,random=1"},
      {"sink_window", "block=64,window=10", "block=16,window=4"},
      {"semsa", "block=32,windows=1+100.20", "block=16,sinks=1,windows=2.1+25.4"},
      {"structured_sparse", "block=32,region=20", "block=16,region=4,reach=0"},
      {"diffuser", "block=16,window=40,hops=1", "block=32,window=1,global=1,random=1,alpha=0.5,hops=2"},
      {"quest", "block=32,top=20", "block=16,top=2,first=0"},
      {"impress", "block=32,top=20", "block=16,top=2,first=0"},
      {"h2o_blocks", "block=32,top=20", "block=16,top=2,window=2,tracked=4"},
      {"minference", "block=32,top=20", "block=32,top=1"},
      {"minference", "block=32,heads=a20.v20+0.b20,last=2", "block=16,heads=v2+1.a2.v1+1.b2,last=3"},
      {"reformer", "block=16,top=40", "block=16,top=3,hashes=2,buckets=8"},
      {"routing_transformer", "block=16,top=40", "block=32,top=2,clusters=6"},
      {"sparse_flash_attention", "block=16,window=40", "block=32,buckets=128"},
      {"sparse_flash_attention", "block=16,form=drop,drop=0", "block=16,form=drop,drop=0.6,drop_queries=0.3"},
      {"sinkhorn", "block=32,top=20", "block=16,top=2"},
  };
  for (PatternTexts& one : out) {
    one.all = one.name + ":" + one.all;
    if (!one.some.empty()) one.some = one.name + ":" + one.some;
  }
  for (const auto& entry : attention_patterns().entries()) {
    if (!entry.member) continue;  // the model's own
    EXPECT_NE(std::ranges::find(out, entry.info.name, &PatternTexts::name), out.end())
        << entry.info.name << ": has no line in tests/pattern_texts.h";
  }
  return out;
}

}  // namespace millrace::testing
